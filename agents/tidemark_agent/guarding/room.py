"""What a build's directories take of the disk. Whoever fills them may do all he can to hide it."""

import errno
import os

# A tree of objects has some ten thousand files; a host runs out of inodes long after this.
MOST_FILES = 2_000_000
_BLOCK = 512


class HiddenError(Exception):
    """No build has such directories, and nobody can count what is below them."""


def size_below(directories: list[str], enough: int) -> int:
    """Bytes of disk that all files below take, or some number above `enough` once it is more than that.

    Raises HiddenError, also for a directory that cannot be read: it may have been filled before.
    """
    total = count = 0
    waiting = list(directories)
    while waiting and total <= enough:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    total += _size(entry)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise HiddenError("it nests directories deeper than a path can name") from error
            if error.errno == errno.EACCES:
                raise HiddenError("it has made directories that cannot be looked into") from error
        if count > MOST_FILES:
            return enough + 1
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except FileNotFoundError:
        return 0


def device_of(directory: str) -> int:
    return os.stat(directory).st_dev  # noqa: PTH116 (the guard goes without pathlib)


def room_of(directory: str) -> tuple[int, int]:
    """Bytes and files that the disk of `directory` still has room for; many where it cannot be told."""
    try:
        about = os.statvfs(directory)
    except OSError:
        return 1 << 62, 1 << 62
    return about.f_bavail * about.f_frsize, about.f_favail if about.f_files else 1 << 62
