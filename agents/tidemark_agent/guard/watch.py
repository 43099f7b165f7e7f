"""What a command takes: processes, memory, room on disk, and when it is too much."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

from tidemark_agent.guard.orders import MIB, Orders, Over

# A tree of objects has some ten thousand files; a host runs out of inodes long after this.
MOST_FILES = 2_000_000
_ROOM_BLOCK = 512


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
        return entry.stat(follow_symlinks=False).st_blocks * _ROOM_BLOCK
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


_PAGE = os.sysconf("SC_PAGE_SIZE")
# Of /proc/PID/stat behind the name: state, parent, ...
_PARENT, _THREADS = 1, 17
# Its own ticks of CPU, and those of all its children that it has waited for.
_TIMES = slice(11, 15)
_TICKS = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/statm, in pages.
_RESIDENT, _SHARED = 1, 2
_FEW = 100


class Taken:
    """`memory` is what nobody but these processes has, in bytes; threads count as processes, as the kernel counts.

    `files` is how many they may have open, which the kernel counts for the whole host.
    """

    def __init__(self, processes: int, memory: int, files: int = 0) -> None:
        self.processes = processes
        self.memory = memory
        self.files = files


def taken_by_children(root: int, most: int = 0) -> Taken:
    """What all descendants of process `root` take together; those that come and go meanwhile may be missing.

    Memory that some of them share with each other alone is counted, too, where all together might have above `most`
    bytes: that look is expensive.
    """
    parents, threads = _all_processes()
    found = _below(root, parents)
    sizes = [_sizes(pid) for pid in found]
    memory = sum(own for own, _ in sizes)
    if most and memory <= most < sum(resident for _, resident in sizes):
        memory = max(memory, sum(_share(pid) for pid in found))
    # A build has some dozens of processes: what these may have open needs no look.
    files = sum(_open_files(pid) for pid in found) if len(found) > _FEW else 0
    return Taken(sum(threads[pid] for pid in found), memory, files)


def cpu_of_children(root: int) -> float:
    """Seconds of CPU that all descendants of process `root` have taken, those that have ended before among them."""
    parents: dict[int, list[int]] = {}
    ticks = {}
    for pid, fields in _stats():
        parents.setdefault(int(fields[_PARENT]), []).append(pid)
        ticks[pid] = sum(int(field) for field in fields[_TIMES])
    return sum(ticks[pid] for pid in _below(root, parents)) / _TICKS


def held_files(root: int, device: int) -> int:
    """Bytes of disk `device` in files that have no name any more, but are open or mapped below process `root`.

    Of one that is mapped only, as much counts as its mappings reach.
    """
    opened: dict[int, int] = {}
    mapped: dict[int, int] = {}
    for pid in _below(root, _all_processes()[0]):
        # A thread may have files of its own.
        for thread in _names(f"/proc/{pid}/task"):
            folder = f"/proc/{pid}/task/{thread}/fd"
            for name in _names(folder):
                try:
                    found = os.stat(f"{folder}/{name}")  # noqa: PTH116 (a Path for each is most of the cost)
                except OSError:
                    continue
                if found.st_nlink == 0 and found.st_dev == device:
                    opened[found.st_ino] = found.st_blocks * _ROOM_BLOCK
        for line in _maps(pid):
            if line.endswith(b" (deleted)"):
                inode, end = _mapping(line, device)
                mapped[inode] = max(mapped.get(inode, 0), end)
    return sum((mapped | opened).values())


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (as above)
    except OSError:
        return []


def _maps(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes().splitlines()
    except OSError:
        return []


def _mapping(line: bytes, device: int) -> tuple[int, int]:
    """Inode, and the byte up to which the file is mapped: 0 for one on another device."""
    addresses, _rights, offset, where, inode, *_ = line.split()
    begin, _, end = addresses.partition(b"-")
    major, _, minor = where.partition(b":")
    if os.makedev(int(major, 16), int(minor, 16)) != device:
        return int(inode), 0
    return int(inode), int(offset, 16) + int(end, 16) - int(begin, 16)


def children_of(parent: int) -> list[int]:
    return _all_processes()[0].get(parent, [])


def _below(root: int, parents: dict[int, list[int]]) -> list[int]:
    found: list[int] = []
    generation = [root]
    while generation:
        generation = [pid for parent in generation for pid in parents.get(parent, ())]
        found += generation
    return found


def _all_processes() -> tuple[dict[int, list[int]], dict[int, int]]:
    """Children by parent, number of threads by process."""
    parents: dict[int, list[int]] = {}
    threads = {}
    for pid, fields in _stats():
        parents.setdefault(int(fields[_PARENT]), []).append(pid)
        threads[pid] = int(fields[_THREADS])
    return parents, threads


def _stats() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir("/proc"):  # noqa: PTH208 (a Path for each process is most of the cost of a look)
        if name.isdigit():
            # PID (NAME) STATE PARENT: the name may have any character in it.
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > _THREADS:
                yield int(name), fields


def _sizes(pid: int) -> tuple[int, int]:
    """Resident memory without files and shared memory (compilers of one build share their program), and with them."""
    words = _read(f"/proc/{pid}/statm").split()
    if not words:
        return 0, 0
    resident = int(words[_RESIDENT])
    return max(0, resident - int(words[_SHARED])) * _PAGE, resident * _PAGE


def _open_files(pid: int) -> int:
    """The places in its table of open files, which grows in powers of two."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"FDSize:"):
            return int(line.split()[1])
    return 0


def _share(pid: int) -> int:
    """Its part of all memory that is no file's: pages that several processes have are divided among them."""
    lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")))


def memory_left() -> int:
    """Bytes that the host still has for anybody; -1 where the kernel does not say."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            return int(line.split()[1]) * 1024
    return -1


def files_left() -> float:
    """The part of all open files that the host may still open; 1 where the kernel does not say."""
    match _read("/proc/sys/fs/file-nr").split():
        case [used, _free, most] if int(most):
            return 1 - int(used) / int(most)
    return 1.0


def _read(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 8192)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def run_before_others() -> None:
    """Run before everything that is not urgent, where this process may (root); its children do not inherit that.

    Only root's commands need it: the kernel holds those of all others to their number of processes by itself. A fork
    bomb has thousands of processes within a tenth of a second, and each of them would have its turn first.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        return


_PAUSE_SECONDS = 0.5
# Where the kernel itself does not count processes: twice as many grow in a few milliseconds.
_SHORT_PAUSE_SECONDS = 0.05
# Below this the host itself is in danger, whoever took the rest.
_LEAST_MEMORY = 256 * MIB
_LEAST_DISK = 512 * MIB
_LEAST_FILES = 10_000
# Open at once. A host has room for some 100,000 for each GiB of its memory.
_MOST_FILES = 400_000
# Of all that the host may have open. What is open without a number in a table (mapped, in a thread's own) shows here.
_LEAST_OPEN = 0.3
# Counting all files takes a while, so it is done when the disk as a whole has lost this much, or after this time.
_COUNT_BYTES, _COUNT_FILES = 256 * MIB, 50_000
_COUNT_SECONDS = 60.0


class Watch:
    """`look` is called as often as the caller likes; it looks when it is time, `pause` seconds after the last look.

    `is_counted`: the kernel holds the command to its number of processes.
    """

    def __init__(self, orders: Orders, *, is_counted: bool) -> None:
        self._orders = orders
        self.pause = _PAUSE_SECONDS if is_counted or not orders.processes else _SHORT_PAUSE_SECONDS
        self._next = 0.0
        self._counted_at = time.monotonic()
        self._device = device_of(orders.directories[0]) if orders.directories else -1
        self._last = room_of(orders.directories[0]) if orders.directories else (0, 0)

    def look(self) -> Over | None:
        now = time.monotonic()
        if not self._orders.is_limited or now < self._next:
            return None
        started = time.thread_time()
        found = self._memory_and_processes() or (self._disk(now) if self._orders.disk else None)
        # On a host with many processes a look is expensive: never more than a tenth of one CPU goes into them.
        self._next = time.monotonic() + max(self.pause, 10 * (time.thread_time() - started))
        return found

    def _memory_and_processes(self) -> Over | None:
        orders = self._orders
        if not orders.memory and not orders.processes:
            return None
        taken = taken_by_children(os.getpid(), orders.memory)
        if orders.processes and taken.processes > orders.processes:
            return Over(f"it has {taken.processes} processes and threads, {orders.processes} are allowed")
        if taken.files > _MOST_FILES:
            return Over(f"its processes may have {taken.files} files open, {_MOST_FILES} are allowed")
        if orders.memory and taken.memory > orders.memory:
            return Over(f"it took {taken.memory // MIB} MiB of memory, {orders.memory // MIB} are allowed")
        left = memory_left()
        if orders.memory and 0 <= left < _LEAST_MEMORY:
            return _host_memory(taken, left)
        few = files_left() < _LEAST_OPEN
        return Over("the host has hardly room for more open files", is_ours=True) if few else None

    def _disk(self, now: float) -> Over | None:
        orders = self._orders
        room = room_of(orders.directories[0])
        is_short = room[0] < _LEAST_DISK or room[1] < _LEAST_FILES
        lost = (self._last[0] - room[0], self._last[1] - room[1])
        is_due = now - self._counted_at > _COUNT_SECONDS
        if not is_short and not is_due and lost[0] < min(_COUNT_BYTES, orders.disk // 4) and lost[1] < _COUNT_FILES:
            return None
        self._last, self._counted_at = room, now
        try:
            size = size_below(orders.directories, orders.disk)
        except HiddenError as error:
            return Over(str(error))
        # Files without a name take as much as others.
        size += held_files(os.getpid(), self._device)
        if size > orders.disk:
            return Over(f"it takes more than {orders.disk // MIB} MiB of disk, or too many files")
        if is_short:
            # Within its limit nothing is its fault: the rest is somebody else's, who may have written it before.
            return Over(f"the disk is nearly full, {size // MIB} MiB are the build's own", is_ours=True)
        return None


def _host_memory(taken: Taken, left: int) -> Over:
    reason = f"the host has {left // MIB} MiB of memory left, the build itself took {taken.memory // MIB} MiB"
    return Over(reason, is_ours=True)
