"""Wishes that keep all other processes off the measured CPUs, by control groups (version 2).

The agent's own group stays as wide as the machine, for its cases run there; every group beside the way from the root
to it is narrowed to the housekeeping CPUs. Processes that are in no group but the root's cannot be moved this way.
"""

from pathlib import PurePosixPath

from tidemark_agent.prepare.cpu_list import cpu_list
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.layout import Layout
from tidemark_agent.prepare.wishes import Want, Wish

_MOUNTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


def controllers(files: KernelFiles) -> Wish:
    """The groups beside ours can have CPUs of their own."""
    parts = tuple(
        Want("cpuset", f"{group}/cgroup.subtree_control", "on")
        for group in _way(files)
        if "cpuset" in files.text(f"{group}/cgroup.controllers").split() and list(_beside(files, group))
    )
    return Wish("cgroup-cpuset", "on", parts, needed=False, absence=_ABSENCE)


def other_groups(files: KernelFiles, layout: Layout) -> Wish:
    """To be asked after `controllers` has been set: the files are not there before."""
    keep = cpu_list(layout.housekeeping)
    parts = tuple(
        Want("cpus", f"{group}/cpuset.cpus", keep) for parent in _way(files) for group in _beside(files, parent)
    )
    return Wish("other-cgroups", keep, parts, needed=False, absence=_ABSENCE)


_ABSENCE = "no control groups (version 2) with cpuset beside the agent's"


def _way(files: KernelFiles) -> list[str]:
    """The groups from the root to the parent of the agent's; only the root if the agent is there itself."""
    mount = next((place for place in _MOUNTS if files.text(f"{place}/cgroup.controllers")), None)
    if mount is None:
        return []
    inside = _own_group(files).parts
    return ["/".join((mount, *inside[:depth])) for depth in range(max(len(inside), 1))]


def _beside(files: KernelFiles, parent: str) -> list[str]:
    """The children of a group that are not on the way to the agent's."""
    way = {*_way(files), "/".join((_way(files)[0], *_own_group(files).parts))}
    children = (str(PurePosixPath(found).parent) for found in files.names(parent, "*/cgroup.procs"))
    return [child for child in children if child not in way]


def _own_group(files: KernelFiles) -> PurePosixPath:
    """Relative to the mount; processes in a name space of their own see a path that begins with `..`: the root then."""
    lines = files.text("proc/self/cgroup").splitlines()
    path = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    return PurePosixPath() if ".." in path.split("/") else PurePosixPath(path)
