"""Reading files of builds: each is hashed on its way, and nobody gets a whole file of wrong bytes."""

import errno
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from server.builds.stores import artifact_store
from server.core.errors import DomainError

_CHUNK = 256 * 1024


@dataclass(frozen=True)
class ArtifactStream:
    """An artifact to be read once: `size` in bytes, and its bytes in pieces."""

    size: int
    chunks: Iterator[bytes]


def open_artifact(sha256: str) -> ArtifactStream:
    """The bytes of an artifact; raises DomainError `not-found`, or `store-away`.

    They are hashed on their way. The last piece of a file that is not what its name says is held back: DomainError
    `damaged` is raised instead of it, so that no reader gets a whole file of wrong bytes. The caller puts it aside.
    """
    store = artifact_store()
    found = store.find(sha256)
    try:
        if found is None:
            raise FileNotFoundError
        stream = store.open(sha256)
    except FileNotFoundError:
        raise DomainError("not-found", f"no artifact {sha256}") from None

    def pieces() -> Iterator[bytes]:
        digest, held = hashlib.sha256(), b""
        with stream:
            while piece := _read(stream, sha256):
                digest.update(piece)
                if held:
                    yield held
                held = piece
        if digest.hexdigest() != sha256:
            raise DomainError("damaged", f"artifact {sha256} is damaged: its bytes hash to {digest.hexdigest()}")
        yield held

    return ArtifactStream(found.size, pieces())


def _read(stream: BinaryIO, sha256: str) -> bytes:
    """The next piece; a disk that cannot give it back has lost it."""
    try:
        return stream.read(_CHUNK)
    except OSError as error:
        if error.errno == errno.EIO:
            raise DomainError("damaged", f"artifact {sha256} is damaged: {error.strerror}") from error
        raise DomainError("store-away", f"the store of artifacts: {error}", permanent=False) from error


def is_whole(sha256: str) -> bool:
    """Read the artifact to its end; whether it is there and hashes to its name. Raises `store-away`."""
    try:
        for _piece in open_artifact(sha256).chunks:
            pass
    except DomainError as error:
        if error.code not in {"damaged", "not-found"}:
            raise
        return False
    return True
