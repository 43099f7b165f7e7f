"""CPUs and what is asked of a preparation: lists, layout, affinity of the agent, and its outcome."""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.prepare.files import KernelFiles, SettingError

# More than any kernel can have (NR_CPUS is at most 8192): a hostile "0-999999999" must not fill the memory.
_MOST_CPUS = 16384
_PIECE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_MASK = re.compile(r"[0-9a-fA-F]{1,8}(?:,[0-9a-fA-F]{1,8})*")


def cpu_set(text: str) -> frozenset[int]:
    """The CPUs of a list; raises ValueError for anything else."""
    cpus: set[int] = set()
    for piece in text.strip().split(",") if text.strip() else ():
        match = _PIECE.fullmatch(piece.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _MOST_CPUS:
            raise ValueError(f"{text.strip()[:80]!r} is no list of CPUs")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def cpu_list(cpus: frozenset[int]) -> str:
    """The shortest list of these CPUs: `0,2-5`, "" for none."""
    pieces: list[list[int]] = []
    for cpu in sorted(cpus):
        if pieces and pieces[-1][1] == cpu - 1:
            pieces[-1][1] = cpu
        else:
            pieces.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pieces)


def common_cpus(one: str, other: str) -> str:
    """The CPUs that both lists have: those of a core type that are measured, say."""
    return cpu_list(cpu_set(one) & cpu_set(other))


def without_cpus(cpus: str, removed: str) -> str:
    return cpu_list(cpu_set(cpus) - cpu_set(removed))


def mask_set(text: str) -> frozenset[int]:
    """The CPUs of a hexadecimal mask; raises ValueError for anything else."""
    if not _MASK.fullmatch(text.strip()) or len(text) > _MOST_CPUS // 3:
        raise ValueError(f"{text.strip()[:80]!r} is no mask of CPUs")
    # Groups after the first always have eight digits; the kernel takes shorter ones as it takes 00000001.
    first, *rest = text.strip().split(",")
    bits = int(first + "".join(group.zfill(8) for group in rest), 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def cpu_mask(cpus: frozenset[int]) -> str:
    """A mask in groups of 32 CPUs, without leading zeros."""
    bits = sum(1 << cpu for cpu in cpus)
    groups: list[int] = []
    while bits or not groups:
        groups.append(bits & 0xFFFFFFFF)
        bits >>= 32
    head, *tail = reversed(groups)
    return ",".join([f"{head:x}", *(f"{group:08x}" for group in tail)])


# What an operator may name in `tolerate`; docs/operations/prepare.md describes each.
SETTING_NAMES = frozenset(
    {
        "agent-cpus",
        "aslr",
        "boost",
        "cgroup-cpuset",
        "drop-caches",
        "energy-preference",
        "governor",
        "huge-pages",
        "irq-affinity",
        "irq-default-affinity",
        "kaslr",
        "ksm",
        "nmi-watchdog",
        "numa-balancing",
        "other-cgroups",
        "services",
        "soft-watchdog",
        "swap",
        "sync",
        "thp",
        "thp-defrag",
        "thp-sizes",
        "timer-migration",
        "workqueue-cpus",
    }
)
Outcome = Literal["set", "kept", "unavailable", "tolerated"]
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_.@\\-]{0,250}")


class CannotMeasureError(InfrastructureError):
    """A needed setting cannot be had, or the machine is busy, hot or throttled: the message says which and why."""


@dataclass(frozen=True)
class PrepareConfig:
    """The operator's part: `[prepare]` of agent.toml. Raises ValueError, with what is wrong, when it is made.

    `housekeeping_cpus` is a CPU list for all that is not measured ("" lets the agent choose), `quiet_services` are
    systemd units to stop while measuring, `tolerate` names needed settings that this machine may lack.
    """

    housekeeping_cpus: str = ""
    quiet_services: tuple[str, ...] = ()
    tolerate: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        cpu_set(self.housekeeping_cpus)
        for unit in self.quiet_services:
            if not _UNIT.fullmatch(unit):
                raise ValueError(f"quiet_services: {unit!r} is no name of a systemd unit")
        if strange := sorted(self.tolerate - SETTING_NAMES):
            raise ValueError(f"tolerate: no setting is called {', '.join(strange)}")


@dataclass(frozen=True)
class Setting:
    """One thing that was looked at or set, in the words of the system's own files.

    `outcome` is set (verified), kept (was so already, or is only recorded), unavailable (this system has no such thing)
    or tolerated (could not be had and is not needed); `note` says why when it is not simply set or kept.
    """

    name: str
    wanted: str
    before: str
    after: str
    outcome: Outcome
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


_CPUS = "sys/devices/system/cpu"
# With fewer, giving one away changes more about what is measured than it quietens.
_FEWEST_CPUS = 4


@dataclass(frozen=True)
class Layout:
    """Disjoint sets of the online CPUs; without housekeeping all are measured and nothing can be moved away."""

    housekeeping: frozenset[int]
    measured: frozenset[int]

    def as_setting(self) -> Setting:
        text = cpu_list(self.housekeeping) or "none"
        note = "" if self.housekeeping else f"fewer than {_FEWEST_CPUS} CPUs: nothing is pinned or moved"
        return Setting("housekeeping", "", text, text, "kept", note)


def read_layout(files: KernelFiles, wanted: str) -> Layout:
    """The operator's choice, else CPU 0 and what shares its core; raises CannotMeasureError for a choice that fails."""
    online = online_cpus(files)
    chosen = cpu_set(wanted)
    if offline := chosen - online:
        raise CannotMeasureError(f"housekeeping_cpus names CPUs that are not online: {cpu_list(offline)}")
    if not chosen and len(online) >= _FEWEST_CPUS:
        first = min(online)
        chosen = (_siblings(files, first) | {first}) & online
    if chosen == online and wanted:
        raise CannotMeasureError(f"housekeeping_cpus = {wanted!r} leaves no CPU to measure on")
    # All CPUs on one core, as siblings: there is no quiet one to be had.
    housekeeping = frozenset() if chosen == online else chosen
    return Layout(housekeeping, online - housekeeping)


def online_cpus(files: KernelFiles) -> frozenset[int]:
    """Raises CannotMeasureError if the system does not tell."""
    try:
        online = cpu_set(files.read(f"{_CPUS}/online") or "")
    except (ValueError, SettingError) as error:
        raise CannotMeasureError(f"/{_CPUS}/online: {error}") from error
    if not online:
        # Kernels without SMP have no such file: there is one CPU, and it is number 0.
        return frozenset({0})
    return online


def _siblings(files: KernelFiles, cpu: int) -> frozenset[int]:
    try:
        return cpu_set(files.read(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list") or "")
    except (ValueError, SettingError):
        return frozenset()


_TASKS = Path("/proc/self/task")
_NAME = "agent-cpus"


class AgentCpus:
    """All threads of this process; its children inherit the CPUs of the thread that starts them."""

    def __init__(self) -> None:
        self._before: frozenset[int] | None = None

    def confine(self, layout: Layout) -> Setting:
        before = frozenset(os.sched_getaffinity(0))
        wanted = cpu_list(layout.housekeeping)
        trouble = _set(layout.housekeeping)
        self._before = before if self._before is None else self._before
        after = cpu_list(frozenset(os.sched_getaffinity(0)))
        if trouble:
            return Setting(_NAME, wanted, cpu_list(before), after, "tolerated", trouble)
        return Setting(_NAME, wanted, cpu_list(before), after, "kept" if after == cpu_list(before) else "set")

    def release(self) -> tuple[str, ...]:
        before, self._before = self._before, None
        trouble = _set(before) if before else ""
        return (trouble,) if trouble else ()


def _set(cpus: frozenset[int]) -> str:
    """Why it could not be, or ""."""
    for task in sorted(_TASKS.iterdir()):
        try:
            os.sched_setaffinity(int(task.name), cpus)
        except ProcessLookupError:
            continue  # A thread that has just ended.
        except OSError as error:
            return f"the agent cannot run on CPUs {cpu_list(cpus)}: {error.strerror}"
    return ""
