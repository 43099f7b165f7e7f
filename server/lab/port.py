"""The port through which work reaches hosts. Adapters: local (this host) and jenkins."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from server.core.errors import DomainError


class WorkKind(enum.StrEnum):
    """What an attempt is for; also the first words of its key."""

    BUILD = "build"
    SESSION = "session"
    POWER_CYCLE = "power-cycle"


class Observed(enum.Enum):
    """What the outside says about an attempt. ENDED alone proves that nothing of it runs any more."""

    # Not there, for as long as it takes to be sure; it may be submitted again.
    ABSENT = "absent"
    # Not there, and too early to say more.
    UNSURE = "unsure"
    WAITING = "waiting"
    ALIVE = "alive"
    # A machine that boots itself took the key in: its agent goes on alone.
    HANDED_OVER = "handed-over"
    # The dispatcher has let go of it: failed, stopped by somebody, agent lost. What it started may live on, as its
    # lease tells.
    LEFT = "left"
    ENDED = "ended"


@dataclass(frozen=True)
class Work:
    """What an adapter must know of an attempt: its key, whose token runs it, and where it runs.

    `host` is the host's name in Jenkins; `boots_itself` says that its agent outlives what the dispatcher started.
    """

    key: str
    scope: str
    subject: str
    kind: WorkKind = WorkKind.BUILD
    host: str = ""
    boots_itself: bool = False


@dataclass(frozen=True)
class Sighting:
    """One attempt as the outside shows it; `detail` is for people: why it waits, how it ended."""

    observed: Observed
    detail: str = ""


@dataclass(frozen=True)
class HostSighting:
    """One host as the outside shows it: whether its agent is connected, and why not."""

    connected: bool
    detail: str = ""


@dataclass(frozen=True)
class Sightings:
    """Everything at one moment: attempts by key, hosts by `Work.host`. A host that is not in it is not known there."""

    works: Mapping[str, Sighting]
    hosts: Mapping[str, HostSighting] = field(default_factory=dict)


class DispatchError(DomainError):
    """Handing over failed; `permanent` tells whether trying again can help."""


class Dispatcher(Protocol):
    name: str

    def submit(self, work: Work) -> None:
        """Start the work unless it is there already; the same key never works twice. Raises DispatchError."""

    def look(self, works: Sequence[Work]) -> Sightings:
        """What became of each. Raises DispatchError when the outside does not answer: then nothing is known."""

    def cancel(self, work: Work) -> bool:
        """Stop it for good; True once it is over or was never there, False while it has to be asked for again."""

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """Keep these hosts (name to key) from any other work, let go of all others; returns those held by now."""
