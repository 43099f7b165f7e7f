"""Object directories (make's O=): kept between builds where that is safe.

A build runs code of its author, who could plant objects for later builds to pick up. So what a patch series
builds goes into a copy that is thrown away; only revisions of watched trees build in the kept directory.
"""

import os
import shutil
import stat
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import KernelError
from tidemark_agent.process import capture
from tidemark_agent.removal import remove_tree

_SERIES_REFS = "refs/tidemark/series/"
_COPY_SECONDS = 600.0
_COPIES = "obj-series"


@dataclass(frozen=True)
class ObjectDirs:
    """The object directories of one tree and configuration below `root`; the caller holds the tree's lock."""

    root: Path
    stop: threading.Event

    @property
    def kept(self) -> Path:
        return self.root / "obj"

    def open(self, *, keep: bool) -> Path:
        """The directory to build in, holding what the last good build of a watched tree left."""
        self.kept.mkdir(parents=True, exist_ok=True)
        self._drop_copies()
        self._drop_interrupted()
        if keep:
            self._mark.touch()
            return self.kept
        # Always a new one: what cannot be deleted of an older copy is in nobody's way.
        copy = Path(tempfile.mkdtemp(prefix=_COPIES, dir=self.root))
        # cp keeps the times that make compares, and shares blocks where the file system can.
        capture(
            ["cp", "-a", "--reflink=auto", f"{self.kept}/.", str(copy)],
            scratch=self.root,
            timeout=_COPY_SECONDS,
            stop=self.stop,
        )
        return copy

    def close(self) -> None:
        """The build ended by itself, well or not: make has left nothing half-written."""
        self._mark.unlink(missing_ok=True)
        self._drop_copies()

    @property
    def _mark(self) -> Path:
        return self.root / "building"

    def _drop_copies(self) -> None:
        """Delete the copies of this build and of agents that were killed, as far as that can be done."""
        for copy in self.root.glob(f"{_COPIES}*"):
            remove_tree(copy)

    def _drop_interrupted(self) -> None:
        """After a killed build, delete all it wrote: make would trust a half-written object newer than its source."""
        if not self._mark.exists():
            return
        began = self._mark.stat().st_mtime_ns
        for directory, _names, files in os.walk(self.kept):
            for name in files:
                path = Path(directory, name)
                if path.lstat().st_mtime_ns >= began:
                    path.unlink()
        self._mark.unlink()


def is_of_series(ref: str) -> bool:
    """Whether the commit comes from a patch mail, so its build must leave no traces."""
    return ref.startswith(_SERIES_REFS)


def take_file(root: Path, name: str, target: Path) -> None:
    """Copy a file that a build left in `root` out of it, not trusting links: they could point at secrets."""
    path = root / name
    try:
        if path.resolve(strict=True) != root.resolve() / name:
            raise KernelError(f"the build left a link in place of {name}")
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise KernelError(f"the build left no {name}") from error
    with open(descriptor, "rb") as source, target.open("wb") as copy:  # noqa: PTH123 (of a descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise KernelError(f"the build left no plain file as {name}")
        shutil.copyfileobj(source, copy)
