"""What the controller answers, as values. Times are aware and by the controller's clock; texts are fit to be stored."""

import enum
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import unquote

from server.lab.dispatch.jenkins.values import (
    LARGEST_ID,
    LARGEST_NUMBER,
    LONGEST_NAME,
    Garbled,
    Item,
    beginning,
    clean,
    parameters_of,
    parse_json,
)

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


class QueueStage(enum.Enum):
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
    stage: QueueStage
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


_PARAMETERS: Final = "actions[parameters[name,value]]"
QUEUE_TREE: Final = f"items[id,why,stuck,inQueueSince,task[name],{_PARAMETERS}]"
# A job of ours has rarely more than one build under way; what is not among these is searched for by its key.
NEWEST_BUILDS: Final = 20
_BUILD: Final = "number,queueId,building,result,timestamp,duration,builtOn"
JOBS_TREE: Final = f"jobs[name,builds[{_BUILD},{_PARAMETERS}]{{0,{NEWEST_BUILDS}}}]"
_NODE: Final = "displayName,offline,temporarilyOffline,offlineCauseReason"
NODES_TREE: Final = f"computer[{_NODE},absoluteRemotePath,executors[currentExecutable[url,number,queueId]]]"
NODE_TREE: Final = "displayName,offline,temporarilyOffline,offlineCause[*],offlineCauseReason,idle,absoluteRemotePath"
BUILD_TREE: Final = (
    "number,url,building,result,inProgress,timestamp,duration,estimatedDuration,builtOn,queueId,displayName,"
    "executor[number,likelyStuck,progress],actions[causes[shortDescription,userId],parameters[name,value]],"
    "artifacts[fileName,relativePath]"
)
SEARCH_TREE: Final = f"allBuilds[number,queueId,{_PARAMETERS}]{{0,100}}"
JOB_TREE: Final = "name,buildable,description,property[parameterDefinitions[name,type]]"
CONTROLLER_TREE: Final = "quietingDown,quietDownReason"

_STAGES = {
    "hudson.model.Queue$WaitingItem": QueueStage.WAITING,
    "hudson.model.Queue$BlockedItem": QueueStage.BLOCKED,
    "hudson.model.Queue$BuildableItem": QueueStage.BUILDABLE,
    "hudson.model.Queue$LeftItem": QueueStage.LEFT,
}


def read_queue(content: bytes, what: str, prefix: str) -> list[QueueItem]:
    """Items of jobs whose names begin with `prefix`; what others have in the queue is not looked at any further."""
    items = Item(parse_json(content, what), what).items("items")
    return [_queue_item(item) for item in items if _job_of(item).startswith(prefix)]


def read_queue_item(content: bytes, what: str) -> QueueItem:
    return _queue_item(Item(parse_json(content, what), what))


def _job_of(item: Item) -> str:
    return item.item("task").text("name", LONGEST_NAME) if item.has("task") else ""


def _queue_item(item: Item) -> QueueItem:
    stage = _STAGES.get(item.name("_class"))
    if stage is None:
        raise Garbled(f"{item.place}: {item.name('_class')} is no kind of queue item that is known")
    executable = item.item("executable") if item.has("executable") else None
    return QueueItem(
        id=item.number("id", LARGEST_ID),
        job=_job_of(item),
        stage=stage,
        why=item.text("why"),
        stuck=item.has("stuck") and item.truth("stuck"),
        since=item.time("inQueueSince"),
        parameters=parameters_of(item),
        number=executable.number("number") if executable else None,
        canceled=item.has("cancelled") and item.truth("cancelled"),
    )


def read_jobs(content: bytes, what: str, prefix: str) -> list[JobBuilds]:
    """Jobs whose names begin with `prefix`, with their newest builds."""
    jobs = Item(parse_json(content, what), what).items("jobs")
    return [_job_builds(job) for job in jobs if job.text("name", LONGEST_NAME).startswith(prefix)]


def _job_builds(job: Item) -> JobBuilds:
    name = job.name("name")
    # A folder or the like whose name begins with the prefix has no builds.
    return JobBuilds(name, tuple(_build(build, name, build.number("number")) for build in job.items_or_none("builds")))


def read_build(content: bytes, what: str, job: str, number: int) -> BuildFacts:
    build = Item(parse_json(content, what), what)
    if build.has("number") and build.number("number") != number:
        raise Garbled(f"{what}: asked for build {number} and got {build.number('number')}")
    return _build(build, job, number)


def _build(build: Item, job: str, number: int) -> BuildFacts:
    return BuildFacts(
        job=job,
        number=number,
        building=build.truth("building"),
        result=build.text("result", 20),
        queue_id=build.number_or_none("queueId", LARGEST_ID),
        node=build.text("builtOn", LONGEST_NAME),
        started_at=build.time("timestamp"),
        seconds=(build.number_or_none("duration", LARGEST_ID) or 0) / 1000,
        parameters=parameters_of(build),
    )


def read_nodes(content: bytes, what: str) -> list[NodeFacts]:
    return [_node(node) for node in Item(parse_json(content, what), what).items("computer")]


def read_node(content: bytes, what: str) -> NodeFacts:
    return _node(Item(parse_json(content, what), what))


def _node(node: Item) -> NodeFacts:
    offline = node.truth("offline")
    working = [executor.item("currentExecutable") for executor in node.items_or_none("executors") if _works(executor)]
    return NodeFacts(
        name=node.name("displayName"),
        offline=offline,
        temporarily_offline=node.has("temporarilyOffline") and node.truth("temporarilyOffline"),
        connected=not offline or bool(node.text("absoluteRemotePath")),
        reason=node.text("offlineCauseReason"),
        busy_with=tuple(_executing(executable) for executable in working),
    )


def _works(executor: Item) -> bool:
    return executor.has("currentExecutable")


def _executing(executable: Item) -> Executing:
    return Executing(
        url=executable.text("url"),
        number=executable.number_or_none("number"),
        queue_id=executable.number_or_none("queueId", LARGEST_ID),
    )


def read_job(content: bytes, what: str) -> JobFacts:
    job = Item(parse_json(content, what), what)
    definitions = [
        definition
        for part in job.items_or_none("property")
        for definition in part.items_or_none("parameterDefinitions")
    ]
    return JobFacts(
        name=job.text("name", LONGEST_NAME),
        buildable=job.truth("buildable"),
        description=job.text("description"),
        parameters=tuple((item.name("name"), item.text("type", LONGEST_NAME)) for item in definitions),
    )


def read_controller(content: bytes, what: str) -> Controller:
    controller = Item(parse_json(content, what), what)
    return Controller(
        quieting_down=controller.has("quietingDown") and controller.truth("quietingDown"),
        reason=controller.text("quietDownReason"),
    )


def read_found(content: bytes, what: str, run_id: str) -> list[tuple[int, int | None]]:
    """Builds with that key among those the search found, newest first, as (number, queue id)."""
    found = []
    for build in _parse_xml(content, what).iter("allBuild"):
        keys = [
            parameter.findtext("value", "")
            for parameter in build.iterfind("action/parameter")
            if parameter.findtext("name") == "RUN_ID"
        ]
        if run_id not in keys:
            raise Garbled(f"{what}: found a build with another key: {clean(repr(keys), 80)}")
        number = _xml_number(build, "number", LARGEST_NUMBER, what)
        queue_id = _xml_number(build, "queueId", LARGEST_ID, what) if build.find("queueId") is not None else None
        found.append((number, queue_id))
    return sorted(found, reverse=True)


def _parse_xml(content: bytes, what: str) -> ET.Element:
    """Jenkins' XML has no document type: with that refused no entity can grow, and nothing is fetched."""
    try:
        # Decoded here: in another encoding a declaration would not be seen.
        text = content.decode("utf-8")
        if "<!" not in text:
            return ET.fromstring(text)  # noqa: S314 (there is no declaration in it)
        reason = "it has declarations"
    except (ET.ParseError, ValueError, LookupError) as error:
        reason = str(error)
    raise Garbled(f"{what}: no XML ({clean(reason, 200)}), it begins {beginning(content)}")


def _xml_number(build: ET.Element, name: str, largest: int, what: str) -> int:
    text = build.findtext(name, "")
    # Digits of other scripts count as digits for isdigit, and a number of thousands of digits takes long to read.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(largest)) and int(text) <= largest):
        raise Garbled(f"{what}: {name} is {clean(repr(text), 80)}, no number")
    return int(text)
