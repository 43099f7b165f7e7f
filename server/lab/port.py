"""The port through which work reaches hosts, and the choice of the adapter (`server/lab/dispatch/`) that fulfils it."""

import abc
import enum
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

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

    `host` is the dispatcher's name for it; `boots_itself` says that its agent outlives what the dispatcher started.
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
    """One host as the outside shows it: whether its agent is connected, and why not.

    `is_now`: it was seen in this look; else it said last itself that it is there, and that was noted then.
    """

    connected: bool
    detail: str = ""
    is_now: bool = True


@dataclass(frozen=True)
class Sightings:
    """Everything at one moment: attempts by key, hosts by `Work.host`. A host that is not in it is not known there."""

    works: Mapping[str, Sighting]
    hosts: Mapping[str, HostSighting] = field(default_factory=dict)


class DispatchError(DomainError):
    """Handing over failed; `permanent` tells whether trying again can help."""


@dataclass(frozen=True)
class Origin:
    """What an agent says of the run that brought its key: all empty where no controller started it.

    `script` is the hash of what that run executes, `boot_id` the system that it runs in.
    """

    job: str = ""
    number: int | None = None
    node: str = ""
    boot_id: str = ""
    script: str = ""


BY_ITSELF = Origin()


# --- what pages show of a controller ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt as a controller sees it; `number` is that of its build there, `why` tells why it waits in the queue.

    `asked` are the steps of stopping it, each with its time. `console` is empty but for staff.
    """

    job: str
    number: int | None
    node: str
    why: str
    stuck: bool
    result: str
    console: str
    posted_at: datetime | None
    seen_at: datetime | None
    absent_since: datetime | None
    asked: tuple[tuple[str, datetime], ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A host as its controller last showed it, or as it last asked for work itself (`asks`)."""

    name: str
    online: bool
    connected: bool
    marked_offline: bool
    offline_reason: str
    held_for: str
    busy_with: str
    seen_at: datetime
    asks: bool = False


@dataclass(frozen=True, slots=True)
class UnfitJob:
    """What is started nowhere until somebody puts it right."""

    name: str
    problem: str
    checked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Alarm:
    """`details` are for staff: they may name the controller's address and files of this host."""

    what: str
    since: datetime | None
    advice: str
    details: str = ""


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What starts agents on other hosts, and its last round; figures of that are None before the first."""

    url: str
    version: str
    answered_at: datetime | None
    round_at: datetime | None
    round_seconds: float | None
    round_requests: int | None
    jobs: tuple[UnfitJob, ...]
    nodes: tuple[Node, ...]


class Dispatcher(abc.ABC):
    """The four that hand work over are every adapter's; the rest is as it is where there is no controller."""

    name: str
    # For people: by what work goes.
    about: str
    # It knows no hosts but this one: none can be away, or be switched off from here; kernels are built here.
    is_local = False
    # Its hosts come for their work by themselves.
    hosts_ask = False

    @property
    def slots(self) -> int | None:
        """How much may be under way at once; None where its hosts alone bound that, 0 where nothing is handed out."""
        return None

    @property
    def steps_seconds(self) -> float | None:
        """For how long a round goes on with its steps; None: until all are done."""
        return None

    @abc.abstractmethod
    def submit(self, work: Work) -> None:
        """Start the work unless it is there already; the same key never works twice. Raises DispatchError."""

    @abc.abstractmethod
    def look(self, works: Sequence[Work]) -> Sightings:
        """What became of each. Raises DispatchError when the outside does not answer: then nothing is known."""

    @abc.abstractmethod
    def cancel(self, work: Work) -> bool:
        """Stop it for good; True once it is over or was never there, False while it has to be asked for again."""

    @abc.abstractmethod
    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """Keep these hosts (name to key) from any other work, let go of all others; returns those held by now."""

    def is_held(self, work: Work) -> bool:  # noqa: ARG002 (what adapters with a controller look at)
        """Whether its host is kept from any other work by now."""
        return True

    def check_origin(self, work: Work, origin: Origin) -> None:  # noqa: B027 (what nobody brings needs no check)
        """Raise DomainError unless the run executes what we defined; what was found is noted first.

        Not called in a transaction that its error would undo.
        """

    def record_arrival(self, work: Work, origin: Origin, *, again: bool) -> None:  # noqa: B027 (nor a note)
        """Note the run that brought the key, in the transaction that takes it in or gives it to an agent.

        `again`: it arrived before. Raises `superseded` if that was in another run.
        """

    def runs(self, attempts: Iterable[int], *, consoles: bool) -> Mapping[int, Run]:  # noqa: ARG002 (as above)
        """Its runs of these attempts, by their ids; `consoles` is for staff."""
        return {}

    def node(self, name: str) -> Node | None:  # noqa: ARG002 (as above)
        return None

    def controller(self) -> ControllerStatus | None:
        return None

    def alarms(self, now: datetime) -> tuple[Alarm, ...]:  # noqa: ARG002 (as above)
        """What a person must look at, the most urgent first."""
        return ()


# --- which adapter ---------------------------------------------------------------------

# Loaded at need: this stands below what adapters are made of.
_ADAPTERS = {
    "local": "server.lab.dispatch.local.LocalDispatcher",
    "jenkins": "server.lab.dispatch.jenkins.adapter.JenkinsDispatcher",
    "pull": "server.lab.dispatch.pull.PullDispatcher",
    "null": "server.lab.dispatch.null.NullDispatcher",
}
# A process has few threads that dispatch; each keeps a connection of its own.
_MOST_KEPT = 8


def adapter_names() -> list[str]:
    return list(_ADAPTERS)


def dispatcher() -> Dispatcher:
    """The dispatcher that TIDEMARK_DISPATCHER names; one for each thread, which keeps its connection."""
    if settings.DISPATCHER not in _ADAPTERS:
        raise ImproperlyConfigured(f"TIDEMARK_DISPATCHER: no dispatcher {settings.DISPATCHER!r}")
    return _made(settings.DISPATCHER, threading.get_ident())


def dispatcher_of(adapter: str) -> Dispatcher:
    """The one that an attempt was handed to, whichever works by now."""
    return _made(adapter, threading.get_ident()) if adapter in _ADAPTERS else dispatcher()


@lru_cache(maxsize=_MOST_KEPT)
def _made(name: str, _thread: int) -> Dispatcher:
    made: Dispatcher = import_string(_ADAPTERS[name])()
    return made


def runs_of(attempts: Mapping[int, str], *, consoles: bool = False) -> dict[int, Run]:
    """Runs of attempts (id to adapter) by their ids: each adapter tells of its own, whichever works by now."""
    found: dict[int, Run] = {}
    for name in set(attempts.values()) & set(_ADAPTERS):
        own = [pk for pk, adapter in attempts.items() if adapter == name]
        found.update(_made(name, threading.get_ident()).runs(own, consoles=consoles))
    return found
