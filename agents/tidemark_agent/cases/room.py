"""The directories that a case works in, below the agent's state: `cases/scratch-...` and `cases/kept/...`.

Scratch is new for each case and gone after it. What is kept belongs to one benchmark in one boot (an unpacked source
tree, say). What another boot left is removed when it is met, and what an agent left that was killed in this one a day
later: a session with a power cut in each boot would fill the disk else.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_FORGOTTEN_SECONDS = 24 * 3600
# The unit of st_blocks, whatever the file system's own blocks are.
_BLOCK_BYTES = 512


@contextlib.contextmanager
def scratch_directory(state: Path, root: Path) -> Iterator[Path]:
    """A new empty directory, removed with all that is in it at the end."""
    base, ours = state / "cases", f"scratch-{_boot(root)}-"
    base.mkdir(parents=True, exist_ok=True)
    _forget_old(base, ours)
    path = Path(tempfile.mkdtemp(prefix=ours, dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def kept_directory(state: Path, name: str, root: Path) -> Path:
    """The directory that `name` keeps while this boot lasts; those of other boots are removed."""
    boot = _boot(root)
    base = state / "cases" / "kept"
    path = base / f"{name}-{boot}"
    path.mkdir(parents=True, exist_ok=True)
    for other in base.iterdir():
        if not other.name.endswith(f"-{boot}"):
            shutil.rmtree(other, ignore_errors=True)
    return path


def size_of(*directories: Path) -> int:
    """Bytes that the files below `directories` take on the disk, as far as they can be seen."""
    return sum(about.st_blocks * _BLOCK_BYTES for about in _files(directories))


def file_sizes(*directories: Path) -> Iterator[int]:
    """The length of each file below `directories` that can be seen."""
    return (about.st_size for about in _files(directories))


def _files(directories: Iterable[Path]) -> Iterator[os.stat_result]:
    """What there is below `directories`, while a program may be making and removing it."""
    for directory in directories:
        for folder, _, names in os.walk(directory):
            for name in names:
                with contextlib.suppress(OSError):
                    yield Path(folder, name).lstat()


def _boot(root: Path) -> str:
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]


def _forget_old(base: Path, ours: str) -> None:
    """In this boot another agent may be running a case by hand; in an earlier one nobody is any more."""
    for path in base.glob("scratch-*"):
        with contextlib.suppress(OSError):
            is_old = path.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS
            if is_old or not path.name.startswith(ours):
                shutil.rmtree(path, ignore_errors=True)
