"""The service's own files: how old they may get, and who may read them."""

import contextlib
import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

_DAY = 86_400
# Nothing for other accounts of the host; the group may read: a git server that hands the mirror to builders is in it.
_MASK = 0o027


def keep_from_others() -> None:
    """From now on this process and those it starts make files that other accounts cannot read; never a laxer umask."""
    before = os.umask(_MASK)
    os.umask(before | _MASK)


@contextlib.contextmanager
def folder_below(root: Path, path: Path) -> Iterator[int]:
    """A descriptor of the folder `path`, which is `root` or lies below it. No link below `root` is followed."""
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in path.relative_to(root).parts:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def remove_tree(folder: Path) -> None:
    """Remove `folder` with all below it, as far as it can be removed, however deep that is."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def open_below(root: Path, path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the plain file `path` below `root`, a folder in which somebody else writes.

    No link is followed, and nothing waits for the other end of a pipe: whatever is no plain file is an OSError.
    """
    with folder_below(root, path.parent) as folder:
        flags |= os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path.name, flags, 0o640, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return descriptor


def forget_files(folder: Path, patterns: Iterable[str], *, days: float) -> int:
    """Remove files below `folder` that match and were last written more than `days` ago; returns how many.

    Links are files: none is followed. What cannot be removed stays, and keeps nothing else from being removed.
    """
    oldest = time.time() - days * _DAY
    removed = 0
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        try:
            removed += _forget(folder, path, oldest)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("file_stays", path=str(path), reason=str(error))
    return removed


def _forget(root: Path, path: Path, oldest: float) -> bool:
    with folder_below(root, path.parent) as folder:
        about = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        if about.st_mtime >= oldest or stat.S_ISDIR(about.st_mode):
            return False
        os.unlink(path.name, dir_fd=folder)
    return True
