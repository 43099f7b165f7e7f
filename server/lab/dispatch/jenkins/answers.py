"""What the controller answers, as values. Times are aware and by the controller's clock; texts are fit to be stored."""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import unquote

from server.lab.dispatch.jenkins.client_values import clean

# The one parameter of our jobs: an attempt's key.
RUN_ID = "RUN_ID"
_JOB_OF_URL = re.compile(r"/job/([^/?#]+)")


@dataclass(frozen=True)
class Head:
    """What an answer tells of the controller itself. Redirects and empty answers tell less: their parts are empty.

    `session` is new at each start of the controller. `skew_seconds` is its clock minus ours, whole seconds at best.
    """

    session: str = ""
    version: str = ""
    date: datetime | None = None
    skew_seconds: float | None = None


@dataclass(frozen=True)
class Triggered:
    """The trigger was accepted; `folded`: an item with the same parameters was waiting already, this is its id."""

    queue_id: int
    folded: bool


class Canceled(enum.Enum):
    """What became of a wish to take an item out of the queue."""

    DONE = "done"
    # No such item: it may be a build by now, or was never there.
    UNKNOWN = "unknown"
    # The item became a build, which goes on.
    STARTED = "started"


class Stage(enum.Enum):
    """How far an item of the queue has come."""

    # In its quiet period.
    WAITING = "waiting"
    # Its job does not let two builds run at once.
    BLOCKED = "blocked"
    # It waits for a node or an executor.
    BUILDABLE = "buildable"
    # It is a build, or was canceled.
    LEFT = "left"


@dataclass(frozen=True)
class QueueItem:
    """One item of the queue; `why` is in the controller's language, for people only."""

    id: int
    job: str
    stage: Stage
    why: str = ""
    stuck: bool = False
    since: datetime | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    # Of the build that it became, once it left.
    number: int | None = None
    canceled: bool = False

    @property
    def run_id(self) -> str:
        """The attempt's key; empty for an item without."""
        return self.parameters.get(RUN_ID, "")


@dataclass(frozen=True)
class BuildFacts:
    """One build; `result` is empty while it runs. `seconds` is 0 while it runs, too."""

    job: str
    number: int
    building: bool
    result: str = ""
    queue_id: int | None = None
    node: str = ""
    started_at: datetime | None = None
    seconds: float = 0.0
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_id(self) -> str:
        """The attempt's key; empty for a build without."""
        return self.parameters.get(RUN_ID, "")


@dataclass(frozen=True)
class JobBuilds:
    """One of our jobs with its newest builds, newest first."""

    name: str
    builds: tuple[BuildFacts, ...]


@dataclass(frozen=True)
class Executing:
    """What one executor works on; the numbers are missing for what is no build of a plain job."""

    url: str
    number: int | None = None
    queue_id: int | None = None

    @property
    def title(self) -> str:
        """Job and number, as `session-zen3-01 #12`. The address would tell everybody where the controller is."""
        job = "/".join(clean(unquote(part)) for part in _JOB_OF_URL.findall(self.url))
        if not job:
            return "other work"
        return f"{job} #{self.number}" if self.number is not None else job


@dataclass(frozen=True)
class NodeFacts:
    """One node. While it is marked offline, only `connected` tells whether its agent is there.

    `connected` needs the permission Agent/Connect: without it a node that is marked offline looks unconnected.
    """

    name: str
    offline: bool
    temporarily_offline: bool
    connected: bool
    reason: str = ""
    busy_with: tuple[Executing, ...] = ()


@dataclass(frozen=True)
class LogPiece:
    """A piece of a build's log without the controller's hidden notes; the next one begins at `next_start` (bytes).

    `cut` says that more was sent than is taken at once; it is not asked for again.
    """

    text: str
    next_start: int
    more: bool
    cut: bool = False


@dataclass(frozen=True)
class JobFacts:
    """What can be seen of a job without the right to read its configuration; parameters as (name, type)."""

    name: str
    buildable: bool
    description: str
    parameters: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Controller:
    """Whether the controller takes work at the moment."""

    quieting_down: bool
    reason: str = ""
