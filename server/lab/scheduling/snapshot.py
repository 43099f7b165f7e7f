"""What the scheduler looks at: plain values of one moment, so that the decision over them is a pure function.

The rows of waiting work are tuples with names: there are thousands of them, and a tuple is made five times as fast as
a frozen dataclass.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from server.lab.port import WorkKind


class WaitingSession(NamedTuple):
    """One planned session. `tree` and `series` are 0 where it has none; `fruitless` counts attempts in vain.

    A trial of no series stands as a series of its own, with a negative number.

    `built` is false while a kernel of it is being built again. `tries` says that it compares equal kernels on a machine
    that is held in quarantine, to tell how it is.
    """

    id: int
    machine: int
    tree: int
    series: int
    priority: int
    since: datetime
    due: datetime
    deadline: datetime | None = None
    forced: bool = False
    needs: frozenset[str] = frozenset()
    fruitless: int = 0
    built: bool = True
    tries: bool = False

    @property
    def stage(self) -> int:
        return 0


class WaitingBuild(NamedTuple):
    """One wanted build. `series` is the one that waits most for it, `stage` how many kernels that series lacks."""

    id: int
    tree: int
    series: int
    priority: int
    since: datetime
    due: datetime
    arch: str
    toolchain: str
    config: int
    stage: int = 1
    base: bool = False
    fruitless: int = 0

    @property
    def deadline(self) -> None:
        return None

    @property
    def forced(self) -> bool:
        return False


class WaitingCycle(NamedTuple):
    """One wanted power cycle."""

    id: int
    machine: int
    since: datetime
    due: datetime
    fruitless: int = 0


Waiter = WaitingSession | WaitingBuild


@dataclass(frozen=True)
class KnownMachine:
    """One machine; `busy` is the key of the attempt that holds it, `alone` whether it wants a quiet host.

    `held` says that it is in a quarantine which sessions of equal kernels are to lift.
    """

    id: int
    name: str
    enabled: bool = True
    health: str = "good"
    health_reason: str = ""
    held: bool = False
    state: str = "idle"
    state_reason: str = ""
    busy: str = ""
    cycling: bool = False
    alone: bool = False
    capabilities: frozenset[str] = frozenset()


@dataclass(frozen=True)
class KnownBuilder:
    """One builder; empty `arches` or `toolchains` mean all of them."""

    id: int
    name: str
    enabled: bool = True
    health: str = "good"
    health_reason: str = ""
    state: str = "idle"
    state_reason: str = ""
    capacity: int = 1
    busy: int = 0
    arches: frozenset[str] = frozenset()
    toolchains: frozenset[str] = frozenset()

    def can(self, build: WaitingBuild) -> bool:
        return self.makes(build.arch) and (not self.toolchains or build.toolchain in self.toolchains)

    def makes(self, arch: str) -> bool:
        return not self.arches or arch in self.arches


@dataclass(frozen=True)
class Spent:
    """Seconds that hosts gave to each tree and series within the window, and what one more piece of work takes."""

    trees: Mapping[int, float] = field(default_factory=dict)
    series: Mapping[int, float] = field(default_factory=dict)
    expected: float = 1800.0


@dataclass(frozen=True)
class Snapshot:
    """Everything at one moment. `warm` names the builder that built a tree's kernel in a configuration last.

    `free_slots` is what a dispatcher with limited capacity has left, of `all_slots`; null: no such limit.
    """

    now: datetime
    sessions: tuple[WaitingSession, ...] = ()
    builds: tuple[WaitingBuild, ...] = ()
    cycles: tuple[WaitingCycle, ...] = ()
    machines: Mapping[int, KnownMachine] = field(default_factory=dict)
    builders: Mapping[int, KnownBuilder] = field(default_factory=dict)
    warm: Mapping[tuple[int, int], int] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    on_machines: Spent = field(default_factory=Spent)
    on_builders: Spent = field(default_factory=Spent)
    free_slots: int | None = None
    all_slots: int = 1


@dataclass(frozen=True)
class Decision:
    """Give this work to this host (null: the control host), taking so much of the dispatcher's capacity."""

    kind: WorkKind
    id: int
    host: int | None
    slots: int
