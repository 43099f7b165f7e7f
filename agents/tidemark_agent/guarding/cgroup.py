"""The kernel's own accounting where it may be used: it counts everything, and its limits cannot be outrun.

cgroup v2: a group is made below the one in which the agent runs, if that is delegated to the agent's user with its
controllers (systemd: `Delegate=yes` and `DelegateSubgroup=`, so that the agent itself sits in a leaf), or beside that
leaf. cgroup v1: root's commands are held to their number of processes, which the kernel does not count else.
"""

import contextlib
import os
from pathlib import Path

from tidemark_agent.guarding.orders import Orders
from tidemark_agent.guarding.report import MIB, Over

_MOUNT = "/sys/fs/cgroup"
_OLD_PIDS = "/sys/fs/cgroup/pids"
_CONTROLLERS = {"memory", "pids"}


class Group:
    """The group of one command; `path` is "" where there is none."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self._memory = _open(f"{path}/memory.events") if path else None
        self._processes = _open(f"{path}/pids.events") if path else None
        # The kernel wakes whoever polls these for POLLPRI when a number in them grows.
        self.descriptors = [found for found in (self._memory, self._processes) if found is not None]

    @property
    def counts_processes(self) -> bool:
        return self._processes is not None

    def join(self) -> None:
        """In the command: be the first in the group."""
        if self.path:
            _write(f"{self.path}/cgroup.procs", "0")

    def look(self, orders: Orders) -> Over | None:
        """Whether the kernel has already refused something because of a limit."""
        if _count(self._memory, "oom_kill"):
            return Over(f"it took more than {orders.memory // MIB} MiB of memory, which are allowed")
        if _count(self._processes, "max"):
            return Over(f"it wanted more than {orders.processes} processes and threads, which are allowed")
        return None

    def remove(self) -> None:
        """Everything in it is dead."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        if self.path:
            with contextlib.suppress(OSError):
                Path(self.path).rmdir()


def own_group(orders: Orders) -> Group:
    """A new group with the limits, or one without a path."""
    place = _path_of("self")
    if not (orders.memory and orders.processes):
        return Group()
    for parent in {place, place.rpartition("/")[0]}:
        path = f"{_MOUNT}{parent}/tidemark-{os.getpid()}"
        offered = _read(f"{_MOUNT}{parent}/cgroup.subtree_control").split()
        if _CONTROLLERS.issubset(offered) and _make(path, orders):
            return Group(path)
    return _old_group(orders)


def _old_group(orders: Orders) -> Group:
    """With cgroup v1, for processes alone."""
    place = _path_of("self", controller=":pids:")
    path = f"{_OLD_PIDS}{place}/tidemark-{os.getpid()}"
    try:
        _make_directory(path)
        _write(f"{path}/pids.max", str(orders.processes))
    except OSError:
        with contextlib.suppress(OSError):
            Path(path).rmdir()
        return Group()
    return Group(path)


def _make(path: str, orders: Orders) -> bool:
    try:
        _make_directory(path)
        _write(f"{path}/memory.max", str(orders.memory))
        _write(f"{path}/pids.max", str(orders.processes))
    except OSError:
        with contextlib.suppress(OSError):
            Path(path).rmdir()
        return False
    for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
        # Kernels without swap do not have the first.
        with contextlib.suppress(OSError):
            _write(f"{path}/{name}", value)
    return True


def _make_directory(path: str) -> None:
    """A guard of the same number that was killed may have left its own."""
    with contextlib.suppress(OSError):
        Path(path).rmdir()
    Path(path).mkdir()


def _count(events: int | None, name: str) -> int:
    """One number of an events file; 0 once the group is gone."""
    if events is None:
        return 0
    try:
        lines = os.pread(events, 4096, 0).decode("ascii").splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith(f"{name} ")]
    return int(found[0]) if found else 0


def _path_of(pid: str, *, controller: str = "0::") -> str:
    """The group of a process in the hierarchy of this controller, without a slash at its end."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        before, found, path = line.partition(controller)
        if found and (not before or before.isdigit()):
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
