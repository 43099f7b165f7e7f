"""Files: the agent's own, written so that a power cut cannot halve them, and those that strangers' programs leave.

Whatever lies where such a program may write is opened by `open_strange` and by nothing else.
"""

import errno
import os
import shutil
import stat
import uuid
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_NEARLY_FULL = 256 * 1024**2
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# What the kernel says of links, of what is no directory where there should be one, and of sockets.
_NOT_PLAIN = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO})
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
# Neither a link to a secret is followed, nor does a pipe without a writer keep the agent for ever.
_STRANGE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class StrangeFileError(OSError):
    """In place of a plain file there is something else: a link, a pipe, a directory."""


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


def open_strange(root: Path, name: str) -> BinaryIO:
    """The plain file `name` below `root`, for reading, where strangers' programs may have put anything.

    `root` itself is ours; no link below it is followed, for it could lead to a secret. StrangeFileError for all that is
    no plain file, other OSErrors as they come. How much is read is for the caller to limit.
    """
    return open(_open_below(root, name, os.O_RDONLY), "rb")


def read_strange(root: Path, name: str, most: int) -> bytes:
    """The first `most` bytes of a file that `open_strange` opens."""
    with open_strange(root, name) as file:
        return file.read(most)


def open_to_write(path: Path, flags: int) -> int:
    """A descriptor of the plain file `path`, which is made if it is missing, for writing where strangers may write."""
    return _open_below(path.parent, path.name, flags | os.O_CREAT)


def _open_below(root: Path, name: str, flags: int) -> int:
    *folders, last = PurePosixPath(name).parts
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        descriptor = os.open(last, flags | _STRANGE, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_PLAIN:
            raise StrangeFileError(error.errno, "no plain file", name) from error
        raise
    finally:
        os.close(folder)
    # Before it becomes a Python file, which a directory cannot.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StrangeFileError(errno.EINVAL, "no plain file", name)
    return descriptor


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
