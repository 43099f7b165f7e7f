"""Object directories (make's O=): kept between builds where that is safe.

A build runs code of its author, who could plant objects for later builds to pick up. So what a patch series
builds goes into a copy that is thrown away; only revisions of watched trees build in the kept directory.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tidemark_agent.errors import KernelError
from tidemark_agent.system.disk import StrangeFileError, open_strange, remove_tree, try_lock
from tidemark_agent.system.process import capture

# Where the service keeps what watched trees published, and what it made of nothing else (server/sources/mirror.py).
# Not what series name as their base: that may be another one.
_PUBLISHED_REFS = tuple(f"refs/tidemark/{kind}/" for kind in ("trees", "tags", "old", "reverts"))
_COPY_SECONDS = 600.0
_COPIES = "obj-series"
_KEPT = "obj"
# Its time is when objects of this tree were last written.
_CLOCK = "clock"
# vmlinux with all debug information has less, and the sandbox lets no file get larger.
LARGEST_FILE = 4 * 1024**3
# What the service takes of one file (docs/operations/artifacts.md).
LARGEST_ARTIFACT = 512 * 1024**2


@dataclass(frozen=True)
class ObjectDirs:
    """The object directories of one tree and configuration below `root`; the caller holds the tree's lock.

    `tools` tells the programs that compile; what others left is not used.
    """

    root: Path
    tools: str
    stop: threading.Event

    @property
    def kept(self) -> Path:
        return self.root / _KEPT

    @property
    def commit(self) -> str:
        """Of which commit the kept objects are; "" if there are none of these tools, or nobody knows."""
        try:
            commit, _, tools = self._commit.read_text(encoding="ascii").partition(" ")
        except (OSError, ValueError):
            return ""
        return commit if tools == self.tools else ""

    def open(self, *, keep: bool, empty: bool = False) -> Path:
        """The directory to build in, holding what the last good build of a watched tree left, or nothing: `empty`."""
        self.kept.mkdir(parents=True, exist_ok=True)
        self.drop_copies()
        self._drop_interrupted()
        if keep:
            if empty:
                self._commit.unlink(missing_ok=True)
                remove_tree(self.kept)
                self.kept.mkdir(exist_ok=True)
            self._mark.touch()
            return self.kept
        # Always a new one: what cannot be deleted of an older copy is in nobody's way.
        copy = Path(tempfile.mkdtemp(prefix=_COPIES, dir=self.root))
        if empty:
            return copy
        # cp keeps the times that make compares, and shares blocks where the file system can.
        capture(
            ["cp", "-a", "--reflink=auto", f"{self.kept}/.", str(copy)],
            scratch=self.root,
            timeout=_COPY_SECONDS,
            stop=self.stop,
        )
        return copy

    def close(self, commit: str = "") -> None:
        """The build of `commit`, "" for one that is not kept, ended by itself: make has left nothing half-written."""
        if commit:
            self._commit.write_text(f"{commit} {self.tools}", encoding="ascii")
        self._mark.unlink(missing_ok=True)
        self.drop_copies()

    @property
    def _commit(self) -> Path:
        return self.root / "commit"

    @property
    def _mark(self) -> Path:
        return self.root / "building"

    def drop_copies(self) -> None:
        """Delete the copies of this build and of agents that were killed, as far as that can be done."""
        for copy in self.root.glob(f"{_COPIES}*"):
            remove_tree(copy)

    def _drop_interrupted(self) -> None:
        """After a killed build, delete all it wrote: make would trust a half-written object newer than its source."""
        if not self._mark.exists():
            return
        began = self._mark.stat().st_mtime_ns
        try:
            remove_newer(self.kept, began)
        except OSError:
            # It left something that cannot be looked into: then nothing of it is worth keeping.
            remove_tree(self.kept)
            self.kept.mkdir(exist_ok=True)
        self._mark.unlink()


# So often is looked, and so many entries at most: whose build makes more is told no number.
_LOOK_SECONDS = 5.0
_MOST_ENTRIES = 200_000
# The kernel writes file times by its tick: a new file may be this much older than the clock says now.
_TICK_NS = 10_000_000


@contextmanager
def told_objects(objects: Path, count: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Say now and then how many objects were compiled inside; `count` keeps how many a whole build makes.

    make does not know how many there will be: what a build from nothing made is what the next one will make, about.
    """
    whole = not objects_since(objects, 0)
    began, known, over = time.time_ns() - _TICK_NS, _known(count) if whole else 0, threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            if made := objects_since(objects, began):
                tell(f"compiling: {made} of about {known} objects" if known >= made else f"compiling: {made} objects")

    looking = threading.Thread(target=look, name="objects", daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()
    if whole:
        count.write_text(str(objects_since(objects, began)), encoding="ascii")


def objects_since(folder: Path, began: int) -> int:
    """How many objects below were written since `began` (ns); 0 where a build left more than an honest one does."""
    found = entries = 0
    for directory, names, files in os.walk(folder):
        entries += len(names) + len(files)
        if entries > _MOST_ENTRIES:
            return 0
        for name in files:
            if name.endswith(".o"):
                try:
                    found += Path(directory, name).lstat().st_ctime_ns >= began
                except OSError:
                    continue
    return found


def _known(count: Path) -> int:
    try:
        return int(count.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def remove_newer(folder: Path, began: int) -> None:
    """Delete files below that were written since `began` (ns). Not by the time that a program can give a file."""
    for directory, _names, files in os.walk(folder, onerror=_raise):
        for name in files:
            path = Path(directory, name)
            found = path.lstat()
            if max(found.st_mtime_ns, found.st_ctime_ns) >= began:
                path.unlink()


def _raise(error: OSError) -> None:
    raise error


def heed_clock(tree: Path) -> bool:
    """Drop all objects of `tree` if the clock was ahead when they were made; whether it was.

    make compares times: what was written by a clock that ran ahead is newer than each source that is changed later. The
    caller holds the tree's lock, and calls this before the build and after it: no object is newer than the last call.
    """
    clock, now = tree / _CLOCK, tree / f"{_CLOCK}.now"
    now.touch()
    was_ahead = clock.exists() and clock.stat().st_mtime_ns > now.stat().st_mtime_ns
    if was_ahead:
        for dirs in tree.glob(f"*/{_KEPT}"):
            remove_tree(dirs)
    now.replace(clock)
    return was_ahead


def drop_leftovers(work: Path, *, beside: Path) -> None:
    """Delete the copies that killed builds of other trees than `beside` left: they take the disk of all.

    Whose tree is being built now keeps its own.
    """
    for lock in work.glob("*/lock"):
        if lock.parent == beside or not any(lock.parent.glob(f"*/{_COPIES}*")):
            continue
        if (descriptor := try_lock(lock)) is not None:
            try:
                for copy in lock.parent.glob(f"*/{_COPIES}*"):
                    remove_tree(copy)
            finally:
                os.close(descriptor)


def is_published(ref: str) -> bool:
    """Whether the commit is one of a watched tree. Builds of all others, known or not, must leave no traces."""
    return ref.startswith(_PUBLISHED_REFS)


_ZEROS: Final = bytes(256 * 1024)


def take_file(root: Path, name: str, target: Path, *, largest: int = LARGEST_FILE) -> None:
    """Copy a file that a build left in `root` out of it, not trusting links: they could point at secrets.

    Raises KernelError for whatever else lies there, and for more than `largest` bytes. Zeros become holes: a build may
    leave a file that takes nothing of its disk.
    """
    with _open_left(root, name) as source:
        if os.fstat(source.fileno()).st_size > largest:
            raise KernelError(f"{name} takes more than {largest // 1024**2} MiB")
        with target.open("wb") as copy:
            while piece := source.read(len(_ZEROS)):
                if piece == _ZEROS[: len(piece)]:
                    copy.seek(len(piece), os.SEEK_CUR)
                else:
                    copy.write(piece)
            copy.truncate()


def put_file(root: Path, name: str, text: str) -> None:
    """Write a small file into `root` in which a build may have left a link under this name, or anything else."""
    path = root / name
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as new:
        new.write(text)


def _open_left(root: Path, name: str) -> BinaryIO:
    """Whatever cannot be opened is the build's doing: an honest one leaves files that its user can read."""
    try:
        return open_strange(root, name)
    except FileNotFoundError as error:
        raise KernelError(f"the build left no {name}") from error
    except StrangeFileError as error:
        raise KernelError(f"the build left no plain file as {name}") from error
    except OSError as error:
        raise KernelError(f"the build left something that cannot be read as {name}") from error
