"""What a build's directories take of the disk. Whoever fills them may do all he can to hide it."""

import os

# A tree of objects has some ten thousand files; a host runs out of inodes long after this.
MOST_FILES = 2_000_000
_BLOCK = 512
_NAME_TOO_LONG = 36


class HiddenError(Exception):
    """Directories are nested deeper than a path can say: no build does that, and nobody can count what is below."""


def size_below(directories: list[str], enough: int) -> int:
    """Bytes of disk that all files below take, or some number above `enough` once it is more than that.

    Raises HiddenError; a directory that cannot be read counts as empty, for its owner cannot write to it either.
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
            if error.errno == _NAME_TOO_LONG:
                raise HiddenError from error
        if count > MOST_FILES:
            return enough + 1
    return total


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except FileNotFoundError:
        return 0


def room_of(directory: str) -> tuple[int, int]:
    """Bytes and files that the disk of `directory` still has room for; many where it cannot be told."""
    try:
        about = os.statvfs(directory)
    except OSError:
        return 1 << 62, 1 << 62
    return about.f_bavail * about.f_frsize, about.f_favail if about.f_files else 1 << 62
