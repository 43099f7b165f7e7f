"""What preparing a machine is told, and what it says about each setting."""

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.prepare.cpu_list import cpu_set

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
