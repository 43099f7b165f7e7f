"""Content-addressed files: stored under their SHA-256, checked before they are accepted and as they are read."""

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from django.conf import settings
from django.core.files.storage import FileSystemStorage, storages
from django.db import transaction

from server.core.database import wait_for_lock
from server.core.errors import DomainError
from server.core.files import forget_files

# Where files of builds lie: a folder that all processes share, or a bucket that speaks S3.
#
# Both keep a file under its SHA-256 and have it whole or not at all.


@dataclass(frozen=True)
class Stored:
    """A file in the store: its SHA-256 in hex, its size in bytes, and when it was stored or last asked to stay."""

    sha256: str
    size: int
    stored_at: datetime


class ArtifactStore(Protocol):
    """What both kinds can do. A store that cannot be reached raises DomainError `store-away`, which passes."""

    def spool_folder(self) -> Path:
        """Folder on this host where a file is collected and checked before it is stored."""

    def find(self, sha256: str) -> Stored | None:
        """The file of this name, or None."""

    def adopt(self, sha256: str, file: Path) -> None:
        """Store a file that was checked; at once and whole. `file` may be gone afterwards."""

    def freshen(self, sha256: str) -> None:
        """Make the file look as if it had been stored now, if it is there."""

    def open(self, sha256: str) -> BinaryIO:
        """The bytes from the first one on. Raises FileNotFoundError."""

    def remove(self, sha256: str) -> None:
        """Delete the file; harmless when it is gone."""

    def put_aside(self, sha256: str) -> None:
        """Move a damaged file away from its name, for people to look at."""

    def every(self) -> Iterator[Stored]:
        """All files, in no order."""

    def forget_litter(self) -> int:
        """Remove what killed processes left of uploads, and damaged files put aside long ago; how many."""


def artifact_store() -> ArtifactStore:
    """The store of this site (settings.STORAGES["artifacts"])."""
    return cast("ArtifactStore", storages["artifacts"])


_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAMAGED = "damaged"
# For the service and its group: whoever else has an account on this host has no business with kernels not published.
_FOLDER, _FILE = 0o750, 0o640
# What was put aside is there to be looked at once somebody has read the history.
_DAMAGED_DAYS = 30.0


class FolderStore(FileSystemStorage):
    """A file appears by a rename after all its bytes are on the disk."""

    @property
    def root(self) -> Path:
        return Path(settings.STATE_DIR) / "artifacts"

    # FileSystemStorage keeps its folder from its first use on; tests give each its own.
    @property
    def base_location(self) -> str:
        return str(self.root)

    @property
    def location(self) -> str:
        return str(self.root)

    def place(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256[2:]

    def spool_folder(self) -> Path:
        return self._folder("incoming")

    def _folder(self, name: str) -> Path:
        """One below the root. What other accounts of this host could read before, they cannot from now on."""
        folder = self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        for place in (self.root, folder):
            if stat.S_IMODE(place.stat().st_mode) & ~_FOLDER:
                # Where it is somebody else's, it stays as he wants it.
                with suppress(PermissionError):
                    place.chmod(_FOLDER)
        return folder

    def find(self, sha256: str) -> Stored | None:
        try:
            found = self.place(sha256).stat()
        except FileNotFoundError:
            return None
        return Stored(sha256, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))

    def adopt(self, sha256: str, file: Path) -> None:
        target = self.place(sha256)
        self._folder(target.parent.name)
        file.chmod(_FILE)
        file.replace(target)
        # The name itself must outlive a power cut, too.
        folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def freshen(self, sha256: str) -> None:
        if self.find(sha256):
            os.utime(self.place(sha256))

    def open(self, sha256: str) -> BinaryIO:  # type: ignore[override]
        return self.place(sha256).open("rb")

    def remove(self, sha256: str) -> None:
        self.place(sha256).unlink(missing_ok=True)

    def put_aside(self, sha256: str) -> None:
        aside = self.root / _DAMAGED / sha256
        self._folder(_DAMAGED)
        try:
            self.place(sha256).replace(aside)
            os.utime(aside)
        except FileNotFoundError:
            return

    def every(self) -> Iterator[Stored]:
        for path in self.root.glob("[0-9a-f][0-9a-f]/*"):
            sha256 = path.parent.name + path.name
            if _SHA256.fullmatch(sha256) and (found := self.find(sha256)):
                yield found

    def forget_litter(self) -> int:
        # Older versions collected uploads beside their places.
        uploads = forget_files(self.root, ("incoming/*", "*/.incoming-*"), days=1)
        return uploads + forget_files(self.root, (f"{_DAMAGED}/*",), days=_DAMAGED_DAYS)


# Content-addressed files: an artifact is stored under its SHA-256, checked before it is accepted and as it is read.
#
# A file is stored by one process, deleted by another, and named by rows: what two of them could do to one file at the
# same moment is done below that file's lock. A row without `removed_at` means that the file is there.

MAX_BYTES = 512 * 1024 * 1024
# The database may lie on the same disk: a full one would stop everything.
_FREE_BYTES = 4 * MAX_BYTES
# One file that is being written may take so much before the disk is looked at again.
LOOKED_EVERY = 16 * 1024 * 1024


@contextmanager
def artifact_lock(*names: str) -> Iterator[None]:
    """A transaction that alone may change these files, by SHA-256, and rows about them. For short steps."""
    with transaction.atomic():
        # Always in one order, so that two holders of several never wait for each other.
        for sha256 in sorted(set(names)):
            wait_for_lock(f"builds.artifact.{sha256}")
        yield


def has_artifact(sha256: str, size: int) -> bool:
    """Whether a file of this hash and size, in bytes, is stored."""
    found = artifact_store().find(sha256)
    return found is not None and found.size == size


def put_artifact(sha256: str, chunks: Iterable[bytes], *, charge: Callable[[int], None] = lambda _: None) -> bool:
    """Store `chunks` under `sha256`; False if it was there already: then it stays as if it were new.

    `charge` is told the size of what is about to be stored, and may raise: then it is not.

    Raises DomainError `hash-mismatch` when the bytes are not what was announced, `too-large` above MAX_BYTES,
    `store-away` when the bucket does not answer, `disk-full` when too little of the disk is left for anything but what
    must go on. A crash leaves no half file under the name.
    """
    store = artifact_store()
    with artifact_lock(sha256):
        if store.find(sha256):
            # Its sender will name it in a result: until then it must not look old.
            store.freshen(sha256)
            return False
    with _spooled(sha256, chunks) as file:
        charge(file.stat().st_size)
        store.adopt(sha256, file)
    with artifact_lock(sha256):
        if store.find(sha256) is None:
            raise DomainError("store-away", f"artifact {sha256[:12]} is not there after its upload", permanent=False)
    return True


@contextmanager
def _spooled(sha256: str, chunks: Iterable[bytes]) -> Iterator[Path]:
    """The bytes in a file on the disk of this host, after they were found to be those announced."""
    digest, size = hashlib.sha256(), 0
    folder = artifact_store().spool_folder()
    check_space(folder)
    looked_at = 0
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".incoming-", delete=False) as file:
        incoming = Path(file.name)
        try:
            for chunk in chunks:
                size += len(chunk)
                if size > MAX_BYTES:
                    raise DomainError("too-large", f"artifact {sha256[:12]} is larger than {MAX_BYTES} bytes")
                if size - looked_at >= LOOKED_EVERY:
                    looked_at = size
                    check_space(folder)
                digest.update(chunk)
                file.write(chunk)
            if digest.hexdigest() != sha256:
                raise DomainError("hash-mismatch", f"the bytes sent hash to {digest.hexdigest()}, not to {sha256}")
            file.flush()
            os.fsync(file.fileno())
            yield incoming
        finally:
            incoming.unlink(missing_ok=True)


def check_may_collect(*folders: Path) -> None:
    """Raise DomainError `disk-full` unless a file may be collected on this host, and in `folders`."""
    for folder in (artifact_store().spool_folder(), *folders):
        check_space(folder)


def check_space(folder: Path) -> None:
    """Raise DomainError `disk-full` where too little is left of the disk on which this folder lies."""
    if shutil.disk_usage(folder).free < _FREE_BYTES:
        message = f"no artifact is taken while less than {_FREE_BYTES >> 20} MiB of the service's disk are free"
        raise DomainError("disk-full", message, permanent=False)


def forget_interrupted_uploads() -> int:
    """Remove what web processes that were killed left of uploads; returns how many files."""
    return artifact_store().forget_litter()


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
