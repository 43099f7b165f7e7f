"""The agent's own files: written so that a power cut cannot halve them, and with room for the last result."""

import errno
import os
import shutil
import uuid
from pathlib import Path

_NEARLY_FULL = 256 * 1024**2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def is_nearly_full(directory: Path) -> bool:
    """Whether the disk is to blame: programs that meet a full one rarely say so, or end as if all were well."""
    return shutil.disk_usage(directory).free < _NEARLY_FULL


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


def make_directory(path: Path) -> None:
    """Make `path`, and those above it that are missing, such that a power cut does not take them away again."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def temporary_for(target: Path) -> Path:
    """A new name beside `target`, on the same file system."""
    return target.with_name(f"{target.name}.{uuid.uuid4().hex[:8]}.partial")


def write_durably(target: Path, data: bytes) -> None:
    temporary = temporary_for(target)
    try:
        temporary.write_bytes(data)
        settle(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def settle(temporary: Path, target: Path) -> None:
    """Give a written file its name such that after a power cut it is there whole or not at all."""
    with temporary.open("rb") as stream:
        os.fsync(stream.fileno())
    temporary.replace(target)
    sync_directory(target.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Reserve:
    """Some of the disk kept for the result that is made just when the disk gets full."""

    def __init__(self, file: Path, size: int) -> None:
        self._file = file
        self._size = size

    def fill(self) -> str:
        """Take the room if it is not held; why that failed, or ""."""
        try:
            if self._file.is_file() and self._file.stat().st_size == self._size:
                return ""
            with self._file.open("wb") as stream:
                os.posix_fallocate(stream.fileno(), 0, self._size)
        except OSError as error:
            self._file.unlink(missing_ok=True)
            return f"no disk space left: {error.strerror or error}" if is_full(error) else f"{error}"
        return ""

    def release(self) -> bool:
        """Give the room back; False if none was held."""
        try:
            self._file.unlink()
        except FileNotFoundError:
            return False
        return True
