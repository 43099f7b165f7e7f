"""The directories that a case works in, below the agent's state: `cases/scratch-...` and `cases/kept/...`.

Scratch is new for each case and gone after it. What is kept belongs to one benchmark in one boot (an unpacked source
tree, say); what another boot or a killed agent left is removed when it is met.
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
def scratch_directory(state: Path) -> Iterator[Path]:
    """A new empty directory, removed with all that is in it at the end."""
    base = state / "cases"
    base.mkdir(parents=True, exist_ok=True)
    _forget_old(base)
    path = Path(tempfile.mkdtemp(prefix="scratch-", dir=base))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def kept_directory(state: Path, name: str, root: Path) -> Path:
    """The directory that `name` keeps while this boot lasts; those of other boots are removed."""
    boot = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]
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


def _forget_old(base: Path) -> None:
    for path in base.glob("scratch-*"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
