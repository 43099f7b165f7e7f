"""Content-addressed files: an artifact is stored under its SHA-256, checked before it is accepted and as it is read.

A file is stored by one process, deleted by another, and named by rows: what two of them could do to one file at the
same moment is done below that file's lock. A row without `removed_at` means that the file is there.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import transaction

from server.builds.stores import artifact_store
from server.builds.stores.folder import FolderStore
from server.core.errors import DomainError
from server.core.locks import wait_for_lock

MAX_BYTES = 512 * 1024 * 1024
# The database may lie on the same disk: a full one would stop everything.
_FREE_BYTES = 4 * MAX_BYTES
# One file that is being written may take so much before the disk is looked at again.
LOOKED_EVERY = 16 * 1024 * 1024


def artifact_path(sha256: str) -> Path:
    """Where the file with this SHA-256 lies, whether it is there or not, at a site that keeps artifacts in a folder."""
    return FolderStore().place(sha256)


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
