"""All settings that hold while it measures, of the machine and of single cases, in their order."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from tidemark_agent.prepare.files import KernelFiles, SettingError
from tidemark_agent.prepare.kinds import swaps
from tidemark_agent.prepare.model import CannotMeasureError, Layout, Setting, cpu_list, cpu_mask, cpu_set


@dataclass(frozen=True)
class Want:
    """One value: kind (see kinds.py), which thing, and how it is to be; `dependent` as in steps.Part."""

    kind: str
    target: str
    value: str
    dependent: bool = False


@dataclass(frozen=True)
class Wish:
    """One setting by its name, made of one or many values.

    `needed` says that measuring without it is refused (unless the operator tolerates that); `absent_is_fine` that a
    system which has no such thing is as good as one where it is set; `absence` is what to tell people in that case.
    """

    name: str
    wanted: str
    parts: tuple[Want, ...]
    needed: bool = True
    absent_is_fine: bool = True
    absence: str = ""


_RECORDED = ("isolcpus", "mitigations", "nohz_full", "preempt", "rcu_nocbs", "hugepages", "transparent_hugepage")


def boot_words(files: KernelFiles) -> tuple[Setting, ...]:
    words = files.text("proc/cmdline").split()
    given = {}
    for word in words:
        name, _, value = word.partition("=")
        given[name] = value or "on"
    recorded = tuple(Setting(name, "", given[name], given[name], "kept") for name in _RECORDED if name in given)
    state = kaslr_state(files)
    return (Setting("kaslr", "", state, state, "kept"), *recorded)


def kaslr_state(files: KernelFiles) -> str:
    """Off if the command line says so, else on: a kernel built without it has no way to tell."""
    return "off" if "nokaslr" in files.text("proc/cmdline").split() else "on"


THP = "sys/kernel/mm/transparent_hugepage"
NUMA_BALANCING = "proc/sys/kernel/numa_balancing"
ASLR = "proc/sys/kernel/randomize_va_space"
_KSM = "sys/kernel/mm/ksm/run"


def transparent_huge_pages() -> tuple[Wish, ...]:
    """`madvise`, so that programs get huge pages where they ask for them, whatever the kernel was configured for."""
    return (
        Wish("thp", "madvise", (Want("word", f"{THP}/enabled", "madvise"),)),
        Wish("thp-defrag", "madvise", (Want("word", f"{THP}/defrag", "madvise"),)),
    )


def numa_balancing() -> Wish:
    """Pages that wander to other nodes by themselves make every run another."""
    return Wish("numa-balancing", "off", (Want("word", NUMA_BALANCING, "0"),))


def address_space() -> Wish:
    """On, the kernel's own default: one fixed layout would be a single draw of luck for all boots."""
    return Wish("aslr", "on", (Want("word", ASLR, "2"),))


def same_page_merging(files: KernelFiles) -> Wish:
    """Stopped. Where it ran, what it has merged is taken apart as well: copy-on-write faults would be measured."""
    wanted = "2" if files.text(_KSM) == "1" else files.text(_KSM) or "0"
    return Wish("ksm", "off", (Want("word", _KSM, wanted),))


def swap(files: KernelFiles) -> Wish:
    try:
        found = swaps(files)
    except SettingError as error:
        raise CannotMeasureError(f"swap cannot be looked at: {error}") from error
    parts = tuple(Want("swap", path, "off") for path in found)
    return Wish("swap", "off", parts, absence="there is no swap")


_MACHINE = "sys/kernel/mm/hugepages"
_NODES = "sys/devices/system/node"
_SIZE = re.compile(r"[1-9]\d{0,8}")
_NODE = re.compile(r"\d{1,4}")
_MOST_PAGES = 1 << 28


def huge_pages(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    """`{"2048": 64}` (kB: pages) or `{"2048": {"0": 64, "1": 64}}` (kB: node: pages); raises CannotMeasureError."""
    if not isinstance(value, Mapping):
        raise CannotMeasureError(f"the case wants huge_pages = {value!r}: a table of sizes was expected")
    return tuple(_pool(str(size), pages, files) for size, pages in value.items())


def _pool(size: str, pages: Any, files: KernelFiles) -> Wish:
    if not _SIZE.fullmatch(size):
        raise CannotMeasureError(f"the case wants huge pages of {size!r} kB")
    per_node = isinstance(pages, Mapping)
    wanted = {str(node): _count(count) for node, count in pages.items()} if per_node else {"": _count(pages)}
    if not all(node == "" or _NODE.fullmatch(node) for node in wanted):
        raise CannotMeasureError(f"the case wants huge pages on nodes {sorted(wanted)}")
    parts = []
    for node, count in wanted.items():
        pool = _directory(size, node)
        number = files.text(f"{pool}/nr_hugepages")
        if not number.isdecimal():
            where = f" on node {node}" if node else ""
            raise CannotMeasureError(f"huge-pages: there are none of {size} kB{where} in this kernel")
        used = int(number) - int(files.text(f"{pool}/free_hugepages") or number)
        parts.append(Want("pool", f"{pool}/nr_hugepages", str(used + count)))
    text = " ".join(f"node{node}={count}" if node else str(count) for node, count in wanted.items())
    nodes = () if per_node else _each_node(size, files)
    return Wish("huge-pages", f"{text} of {size} kB", (*nodes, *parts), absent_is_fine=False)


def _each_node(size: str, files: KernelFiles) -> tuple[Want, ...]:
    """What each node has now: the kernel spreads a change of the machine's pool, and does not take it back so."""
    nodes = list(files.names(_NODES, f"node[0-9]*/hugepages/hugepages-{size}kB/nr_hugepages"))
    return tuple(Want("pool", target, "", dependent=True) for target in nodes) if len(nodes) > 1 else ()


def _directory(size: str, node: str) -> str:
    return f"{_NODES}/node{node}/hugepages/hugepages-{size}kB" if node else f"{_MACHINE}/hugepages-{size}kB"


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PAGES:
        raise CannotMeasureError(f"the case wants {value!r} huge pages")
    return value


# Wishes that keep all other processes off the measured CPUs, by control groups (version 2).
#
# The agent's own group stays as wide as the machine, for its cases run there; every group beside the way from the
# root to it is narrowed to the housekeeping CPUs. Processes that are in no group but the root's cannot be moved this
# way.

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


_CPUFREQ = "sys/devices/system/cpu/cpufreq"
_NO_TURBO = "sys/devices/system/cpu/intel_pstate/no_turbo"


def energy_preference(files: KernelFiles) -> Wish:
    """Comes before the governor: under `performance` some drivers take no other preference than that.

    Putting back goes the other way round, so the old governor is there again when the old preference is written. The
    driver has then chosen one by itself, which is nobody's wish.
    """
    targets = _of_policies(files, "energy_performance_preference")
    parts = (Want("word", target, "performance", dependent=True) for target in targets)
    return Wish("energy-preference", "performance", tuple(parts))


def governor(files: KernelFiles) -> Wish:
    targets = _of_policies(files, "scaling_governor")
    speeds = (
        Want("word", target.replace("scaling_governor", "scaling_setspeed"), "", dependent=True)
        for target in targets
        if files.text(target) == "userspace"
    )
    return Wish("governor", "performance", (*speeds, *_word(targets, "performance")))


def boost(files: KernelFiles) -> Wish:
    """Above its nominal frequency a CPU is as fast as it is cool; off wherever the drivers have a switch for it."""
    machine = (Want("word", f"{_CPUFREQ}/boost", "0"), Want("word", _NO_TURBO, "1"))
    # The machine's switch moves those of its policies, and they cannot be on while it is off.
    has_machine = (files.root / _CPUFREQ / "boost").exists()
    policies = (Want("word", target, "0", dependent=has_machine) for target in _of_policies(files, "boost"))
    return Wish("boost", "off", (*policies, *machine))


def _of_policies(files: KernelFiles, name: str) -> list[str]:
    """The file of every policy with a CPU that is online: the others answer EBUSY."""
    return [
        f"{policy}/{name}"
        for policy in files.names(_CPUFREQ, "policy[0-9]*")
        if files.text(f"{policy}/affected_cpus") and (files.root / policy / name).exists()
    ]


def _word(targets: list[str], value: str) -> tuple[Want, ...]:
    return tuple(Want("word", target, value) for target in targets)


_KERNEL = "proc/sys/kernel"


def watchdogs() -> tuple[Wish, ...]:
    """The detectors of lock-ups wake every CPU, and the hard one takes a counter of its PMU."""
    return (
        Wish("nmi-watchdog", "off", (Want("word", f"{_KERNEL}/nmi_watchdog", "0"),)),
        Wish("soft-watchdog", "off", (Want("word", f"{_KERNEL}/soft_watchdog", "0"),)),
    )


def timer_migration() -> Wish:
    """Timers of idle CPUs may go to busy ones, so that those which are idle on purpose stay so."""
    return Wish("timer-migration", "on", (Want("word", f"{_KERNEL}/timer_migration", "1"),), needed=False)


def services(units: tuple[str, ...]) -> Wish:
    parts = tuple(Want("service", unit, "inactive") for unit in units)
    return Wish("services", "inactive", parts, absence="no quiet_services are configured")


def interrupts(files: KernelFiles, layout: Layout) -> tuple[Wish, ...]:
    """All to the housekeeping CPUs. Those that cannot move (timers, per-CPU queues of disks) are named in the note."""
    keep = layout.housekeeping
    parts = tuple(
        Want("cpus", target, _moved(files.text(target), keep))
        for target in files.names("proc/irq", "[0-9]*/smp_affinity_list")
    )
    default = Want("mask", "proc/irq/default_smp_affinity", cpu_mask(keep))
    return (
        Wish("irq-default-affinity", cpu_list(keep), (default,), needed=False),
        Wish("irq-affinity", cpu_list(keep), parts, needed=False),
    )


def workqueues(layout: Layout) -> Wish:
    target = "sys/devices/virtual/workqueue/cpumask"
    want = Want("mask", target, cpu_mask(layout.housekeeping))
    return Wish("workqueue-cpus", cpu_list(layout.housekeeping), (want,), needed=False)


def _moved(now: str, keep: frozenset[int]) -> str:
    """Where an interrupt is to go: it stays on those of its CPUs that may keep it."""
    try:
        return cpu_list(cpu_set(now) & keep or keep)
    except ValueError:
        return cpu_list(keep)


def machine_wishes(files: KernelFiles, layout: Layout, quiet_services: tuple[str, ...]) -> Iterator[Wish]:
    """Each is made when those before it are set; putting back goes the other way round."""
    # Services first: they might change settings themselves while they stop.
    yield services(quiet_services)
    yield energy_preference(files)
    yield governor(files)
    yield boost(files)
    yield address_space()
    yield from transparent_huge_pages()
    yield numa_balancing()
    yield same_page_merging(files)
    yield swap(files)
    yield from watchdogs()
    if layout.housekeeping:
        yield timer_migration()
        yield workqueues(layout)
        yield from interrupts(files, layout)
        yield controllers(files)
        yield other_groups(files, layout)


_THP_MODES = ("always", "madvise", "never")
_THP_SIZE_MODES = ("always", "inherit", "madvise", "never")
_DEFRAG_MODES = ("always", "defer", "defer+madvise", "madvise", "never")
_ACTIONS = {"sync", "drop_caches"}


def case_wishes(wants: Mapping[str, Any], files: KernelFiles) -> tuple[Wish, ...]:
    """In the order in which they are to be set; raises CannotMeasureError for what nobody can set."""
    if strange := sorted(str(name) for name in wants if name not in _READERS and name not in _ACTIONS):
        raise CannotMeasureError(f"the case wants settings that this agent does not know: {', '.join(strange)}")
    return tuple(wish for name, read in _READERS.items() if name in wants for wish in read(wants[name], files))


def drop_caches_level(wants: Mapping[str, Any]) -> int:
    """1: page cache, 2: slab, 3 or true: both; 0: nothing is dropped."""
    level = wants.get("drop_caches", 0)
    level = (3 if level else 0) if isinstance(level, bool) else level
    if level not in (0, 1, 2, 3):
        raise CannotMeasureError(f"the case wants drop_caches = {level!r}: 1, 2, 3 or true were possible")
    return int(level)


def wants_sync(wants: Mapping[str, Any]) -> bool:
    """By default yes: what an earlier case left to be written would be written while this one runs."""
    return _switch("sync", wants.get("sync", True)) == "on"


def _aslr(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("aslr", value)
    want = Want("word", ASLR, "2" if state == "on" else "0")
    return (Wish("aslr", state, (want,), absent_is_fine=False),)


def _kaslr(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("kaslr", value)
    if state != kaslr_state(files):
        word = "nokaslr is missing there" if state == "off" else "nokaslr stands there"
        raise CannotMeasureError(f"kaslr {state} is wanted, but the kernel's command line says otherwise: {word}")
    return ()


def _thp(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    mode = _one_of("thp", value, _THP_MODES)
    return (Wish("thp", mode, (Want("word", f"{THP}/enabled", mode),), absent_is_fine=mode == "never"),)


def _thp_defrag(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    mode = _one_of("thp_defrag", value, _DEFRAG_MODES)
    return (Wish("thp-defrag", mode, (Want("word", f"{THP}/defrag", mode),), absent_is_fine=mode == "never"),)


def _thp_sizes(value: Any, files: KernelFiles) -> tuple[Wish, ...]:
    if not isinstance(value, Mapping):
        raise CannotMeasureError(
            f"the case wants thp_sizes = {value!r}: a table such as {{64 = 'always'}} was expected"
        )
    parts = []
    for size, mode in value.items():
        target = f"{THP}/hugepages-{size}kB/enabled"
        _one_of(f"thp_sizes.{size}", mode, _THP_SIZE_MODES)
        if not str(size).isdecimal() or (mode != "never" and files.text(target) == ""):
            raise CannotMeasureError(f"thp_sizes cannot be set: this kernel has no folios of {size} kB for programs")
        parts.append(Want("word", target, str(mode)))
    wanted = " ".join(f"{size}={mode}" for size, mode in value.items())
    return (Wish("thp-sizes", wanted, tuple(parts)),)


def _numa_balancing(value: Any, _files: KernelFiles) -> tuple[Wish, ...]:
    state = _switch("numa_balancing", value)
    want = Want("word", NUMA_BALANCING, "1" if state == "on" else "0")
    return (Wish("numa-balancing", state, (want,), absent_is_fine=state == "off"),)


def _switch(name: str, value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else _one_of(name, value, ("on", "off"))


def _one_of(name: str, value: Any, possible: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in possible:
        raise CannotMeasureError(f"the case wants {name} = {value!r}: {', '.join(possible)} were possible")
    return value


# Huge pages last: the settings before them decide what memory is free.
_READERS: Mapping[str, Callable[[Any, KernelFiles], tuple[Wish, ...]]] = {
    "kaslr": _kaslr,
    "aslr": _aslr,
    "numa_balancing": _numa_balancing,
    "thp": _thp,
    "thp_defrag": _thp_defrag,
    "thp_sizes": _thp_sizes,
    "huge_pages": huge_pages,
}
