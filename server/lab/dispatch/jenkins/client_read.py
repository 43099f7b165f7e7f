"""Answers of the recorded calls as values: what `tree=` asks for, and how each is read."""

import xml.etree.ElementTree as ET
from typing import Final

from server.lab.dispatch.jenkins.answers import (
    BuildFacts,
    Controller,
    Executing,
    JobBuilds,
    JobFacts,
    NodeFacts,
    QueueItem,
    Stage,
)
from server.lab.dispatch.jenkins.client_values import (
    LARGEST_ID,
    LARGEST_NUMBER,
    LONGEST_NAME,
    Item,
    beginning,
    clean,
    parameters_of,
    parse_json,
)
from server.lab.dispatch.jenkins.errors import Garbled

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
    "hudson.model.Queue$WaitingItem": Stage.WAITING,
    "hudson.model.Queue$BlockedItem": Stage.BLOCKED,
    "hudson.model.Queue$BuildableItem": Stage.BUILDABLE,
    "hudson.model.Queue$LeftItem": Stage.LEFT,
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
