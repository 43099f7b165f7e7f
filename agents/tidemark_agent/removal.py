"""Deleting what other people's programs left: directories without rights, or nested deeper than a path can name."""

import contextlib
import os
import stat
from pathlib import Path

# Well below the 4096 bytes that a path may have.
_LONGEST_PATH = 2000


def remove_tree(root: Path) -> None:
    """Delete `root` and all below it, as far as that can be done; links are not followed, and nothing recurses.

    What lies too deep is moved up beside `root` first, under its name with a number behind. What a killed agent leaves
    there is found by whoever looks for names that begin like `root`.
    """
    if root.is_symlink():
        root.unlink()
        return
    waiting, found = [root], []
    while waiting:
        directory = waiting.pop()
        found.append(directory)
        _open(directory)
        for entry in _entries(directory):
            path = Path(entry.path)
            if not entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif len(entry.path) < _LONGEST_PATH:
                waiting.append(path)
            else:
                waiting += _moved_up(path, root.with_name(f"{root.name}.{os.getpid()}.{len(found)}"))
    for directory in reversed(found):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _moved_up(path: Path, target: Path) -> list[Path]:
    # A directory can be moved only by who may write into it.
    _open(path)
    try:
        return [path.rename(target)]
    except OSError:
        return []


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _open(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.chmod(stat.S_IRWXU)
