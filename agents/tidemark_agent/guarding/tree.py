"""What a tree of processes takes, by one look through /proc."""

import os
from collections.abc import Iterator

_PAGE = os.sysconf("SC_PAGE_SIZE")
_BLOCK = 512
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
    """Bytes of disk `device` in files that have no name any more, but are open in descendants of process `root`."""
    sizes: dict[int, int] = {}
    for pid in _below(root, _all_processes()[0]):
        try:
            names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 (as above)
        except OSError:
            continue
        for name in names:
            try:
                found = os.stat(f"/proc/{pid}/fd/{name}")  # noqa: PTH116
            except OSError:
                continue
            if found.st_nlink == 0 and found.st_dev == device:
                sizes[found.st_ino] = found.st_blocks * _BLOCK
    return sum(sizes.values())


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
