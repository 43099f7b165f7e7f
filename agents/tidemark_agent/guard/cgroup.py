"""The kernel's own accounting where it may be used: it counts everything, and its limits cannot be outrun.

Only a memory cgroup counts what no process's size shows: buffers of sockets and pipes, files in memory, page tables,
inodes. cgroup v2: a group is made below the one in which the agent runs, if that is delegated to the agent's user with
its controllers (systemd: `Delegate=yes` and `DelegateSubgroup=`, so that the agent itself sits in a leaf), or beside
that leaf. cgroup v1: below the agent's own, where it may be written (root). Where no group can be made, a limit that
the operator has put upon the agent's own group (`MemoryMax=`, a container's) keeps the host whole as well.
"""

import contextlib
import os
from pathlib import Path

from tidemark_agent.guard.orders import MIB, Orders, Over

_MOUNT = "/sys/fs/cgroup"
_CONTROLLERS = {"memory", "pids"}
# What cgroup v1 calls its limits.
_OLD_LIMITS = {"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.shares"}
# One for each processor: a group weighs as much as that many programs of the host, however many processes it has.
_SHARES = 1024 * (os.cpu_count() or 1)
_MOST_WEIGHT = 10_000
# Memory is taken in pieces of up to 2 MiB: the one that would not fit is not counted.
_NEAR = 4 * MIB


class Group:
    """The group of one command: a directory for each controller that counts it, the same one in cgroup v2.

    `shares` are further directories: of the controllers that divide the processors and count what is taken of them.
    `around` is the group with the limit that the operator set, where the command has none of its own.
    """

    def __init__(self, memory: str = "", processes: str = "", around: str = "", shares: tuple[str, ...] = ()) -> None:
        self.memory = memory
        self.shares = shares
        self.processes = processes
        self._memory = _open_memory(memory)
        # Of the agent's own group, which others fill as well: what was killed there before is not this command's.
        self._around = _open_memory(around)
        self._killed_around = _count(self._around, "oom_kill")
        self._processes = _open(f"{processes}/pids.events") if processes else None
        # The kernel wakes whoever polls these for POLLPRI when a number in them grows (v1: of processes alone).
        self.descriptors = [found for found in (self._memory, self._processes) if found is not None]

    @property
    def counts_processes(self) -> bool:
        return self._processes is not None

    def join(self) -> None:
        """In the command: be the first in the group."""
        for path in {self.memory, self.processes} - {""}:
            _write(f"{path}/cgroup.procs", "0")
        for path in filter(None, self.shares):
            # A command without its own share is slower for others, but within its limits.
            with contextlib.suppress(OSError):
                _write(f"{path}/cgroup.procs", "0")

    def look(self, orders: Orders) -> Over | None:
        """Whether the kernel has already refused something because of a limit."""
        if _count(self._memory, "oom_kill"):
            if self._reached_memory(orders.memory):
                return Over(f"it took more than {orders.memory // MIB} MiB of memory, which are allowed")
            return Over("the memory of the host, or what the agent may start here, ran out beside it", is_ours=True)
        if _count(self._around, "oom_kill") > self._killed_around:
            return Over("the limit on the memory of all that the agent starts here was reached", is_ours=True)
        if _count(self._processes, "max"):
            if self._reached_processes(orders.processes):
                return Over(f"it wanted more than {orders.processes} processes and threads, which are allowed")
            return Over("the limit on the processes of all that the agent starts here was reached", is_ours=True)
        return None

    def _reached_memory(self, limit: int) -> bool:
        """Whether what was killed in it was killed for this group's own limit: others may have taken all around it."""
        if "oom " in _read(f"{self.memory}/memory.events"):
            return _count(self._memory, "oom") > 0
        # cgroup v1 does not say whose limit it was.
        return _number(_read(f"{self.memory}/memory.max_usage_in_bytes")) > limit - _NEAR

    def _reached_processes(self, limit: int) -> bool:
        """The same of processes: older kernels count here what any group around it refused."""
        peak = _read(f"{self.processes}/pids.peak")
        if peak:
            return _number(peak) >= limit
        return 2 * _number(_read(f"{self.processes}/pids.current")) >= limit

    def cpu_seconds(self) -> float:
        """What all in it have taken of the processors; 0 where nobody counts that."""
        for path in self._paths():
            if used := _number(_read(f"{path}/cpuacct.usage")):
                return used / 1e9
            for line in _read(f"{path}/cpu.stat").splitlines():
                name, _, used_text = line.partition(" ")
                if name == "usage_usec":
                    return _number(used_text) / 1e6
        return 0.0

    def remove(self) -> None:
        """Everything in it is dead."""
        for descriptor in (self._memory, self._around, self._processes):
            if descriptor is not None:
                os.close(descriptor)
        for path in self._paths():
            _remove(path)

    def _paths(self) -> list[str]:
        return sorted({self.memory, self.processes, *self.shares} - {""})


def own_group(orders: Orders) -> Group:
    """A new group with the limits, or one without a directory."""
    if not (orders.memory and orders.processes):
        return Group()
    place = _path_of("self")
    for parent in {place, place.rpartition("/")[0]}:
        path = f"{_MOUNT}{parent}/tidemark-{os.getpid()}"
        offered = _read(f"{_MOUNT}{parent}/cgroup.subtree_control").split()
        if _CONTROLLERS.issubset(offered) and _make(path, orders):
            return Group(path, path)
    memory, processes = _old_group("memory", orders.memory), _old_group("pids", orders.processes)
    shares = (_old_group("cpu", _SHARES), _old_group("cpuacct"))
    return Group(memory, processes, around="" if memory else _enclosing()[1], shares=shares)


def memory_trouble() -> str:
    """Why no memory cgroup would keep a command within its limits here; "" where one would."""
    if any(word.startswith("cgroup.memory=") and "nokmem" in word for word in _read("/proc/cmdline").split()):
        return "the kernel was started with cgroup.memory=nokmem, so it counts no memory of its own"
    group = own_group(Orders(["lifeline=-1", "report=-1", f"memory={MIB}", "processes=1", "--"]))
    group.remove()
    if group.memory or enclosing_limit():
        return ""
    return "the agent may make no memory cgroup, and no limit is set on the one in which it runs"


def enclosing_limit() -> int:
    """Bytes that the agent's own group and those above it allow; 0 where that is no less than the host has."""
    lowest = _enclosing()[0]
    return lowest if lowest < _host_memory() else 0


def _enclosing() -> tuple[int, str]:
    """The lowest limit around the agent, and the directory of the group that has it; 0 without any."""
    found = [(_number(_read(f"{place}/memory.max")), place) for place in _places()]
    old = _old_place("memory")
    lines = [line.split() for line in _read(f"{old}/memory.stat").splitlines()]
    found += [(_number(words[1]), old) for words in lines if words[0] == "hierarchical_memory_limit"]
    return min((one for one in found if one[0]), default=(0, ""))


def refused_around() -> int:
    """How often the agent's own groups and those above them refused a process or killed for want of memory, so far.

    As far as they can be read. Where the kernel tells a group's own limit from those below it, only the own counts.
    """
    counted = (("pids.events", "max"), ("memory.events", "oom"), ("memory.oom_control", "oom_kill"))
    return sum(
        _counted(_read(f"{place}/{file}.local") or _read(f"{place}/{file}"), name)
        for place in {*_places(), _old_place("memory"), _old_place("pids")}
        for file, name in counted
    )


def _places() -> list[str]:
    """The directories of the agent's own group and of all above it, in cgroup v2."""
    parents = _path_of("self").split("/")
    return [_MOUNT + "/".join(parents[:count]) for count in range(len(parents), 0, -1)]


def _open_memory(path: str) -> int | None:
    """Where the kernel counts what it killed for want of memory in the group at `path`."""
    if not path:
        return None
    events = _open(f"{path}/memory.events")
    return _open(f"{path}/memory.oom_control") if events is None else events


def _host_memory() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return _number(line.split()[1]) * 1024
    return 0


def _number(text: str) -> int:
    """0 for "max" and for what is not there."""
    return int(text) if text.strip().isdigit() else 0


def _old_place(controller: str) -> str:
    """Where the agent's own group of a controller of cgroup v1 is. A container may see it as the root of the mount."""
    mount = f"{_MOUNT}/{controller}"
    place = f"{mount}{_path_of('self', controller)}"
    return place if os.path.isdir(place) else mount  # noqa: PTH112 (a Path costs more than the look)


def _old_group(controller: str, limit: int = 0) -> str:
    """With cgroup v1: a group of this controller alone, or ""; 0: without a limit."""
    path = f"{_old_place(controller)}/tidemark-{os.getpid()}"
    try:
        _make_directory(path)
        if limit:
            _write(f"{path}/{_OLD_LIMITS[controller]}", str(limit))
    except OSError:
        _remove(path)
        return ""
    if controller == "memory":
        # Kernels without swap do not have it.
        with contextlib.suppress(OSError):
            _write(f"{path}/memory.memsw.limit_in_bytes", str(limit))
    return path


def _make(path: str, orders: Orders) -> bool:
    try:
        _make_directory(path)
        _write(f"{path}/memory.max", str(orders.memory))
        _write(f"{path}/pids.max", str(orders.processes))
    except OSError:
        _remove(path)
        return False
    weight = min(_MOST_WEIGHT, 100 * (os.cpu_count() or 1))
    for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1"), ("cpu.weight", str(weight))):
        # Kernels without swap do not have the first, groups without the controller not the last.
        with contextlib.suppress(OSError):
            _write(f"{path}/{name}", value)
    return True


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        Path(path).rmdir()


def _make_directory(path: str) -> None:
    """A guard of the same number that was killed may have left its own."""
    _remove(path)
    Path(path).mkdir()


def _count(events: int | None, name: str) -> int:
    """One number of an events file; 0 once the group is gone."""
    if events is None:
        return 0
    try:
        return _counted(os.pread(events, 4096, 0).decode("ascii"), name)
    except OSError:
        return 0


def _counted(text: str, name: str) -> int:
    found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return int(found[0]) if found else 0


def _path_of(pid: str, controller: str = "") -> str:
    """The group of a process in the hierarchy of this controller (cgroup v2: none), without a slash at its end."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            return path.rstrip("/")
    return ""


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(path: str) -> str:
    descriptor = _open(path)
    if descriptor is None:
        return ""
    try:
        return os.read(descriptor, 8192).decode("utf-8", errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
