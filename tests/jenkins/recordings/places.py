"""Recordings of the queue, of nodes, and of all at once."""

from typing import Any

from server.lab.dispatch.jenkins.answers import QueueStage
from server.lab.dispatch.jenkins.values import Missing
from tests.jenkins.recordings.calls import (
    Entry,
    NotOurs,
    Ours,
    build,
    does,
    fails,
    gives,
    item,
    node,
    tree_of,
    triggers,
)
from tests.jenkins.recordings.runs import CONSOLE, JOB

LABEL = NotOurs("a label that no node has shows in the queue: why, and stuck at once")
ONE_JOB = NotOurs("one request shows the builds of all jobs, whatever their number")
ADMIN = NotOurs("an operator's step")


def queue(*items: tuple[int, QueueStage]) -> Ours:
    """The whole queue as (id, stage), in the order of the answer."""
    return Ours(
        lambda client, exchange: client.queue(tree=tree_of(exchange)),
        lambda value: [(one.id, one.stage) for one in value] == list(items),
    )


def _jobs_understood(value: Any) -> bool:
    builds = {job.name: [(one.number, one.queue_id, one.result, one.building) for one in job.builds] for job in value}
    three = [(60, 1165, "SUCCESS", False), (59, 1164, "SUCCESS", False), (58, 1163, "SUCCESS", False)]
    one = [(1, 15, "", True)]
    return builds == {"bench-multi": [], "bench-n1": [], JOB: three, "bench-zen5": one, "nolabel-job": []}


def _nodes_understood(value: Any) -> bool:
    found = {one.name: (one.offline, one.connected, [work.queue_id for work in one.busy_with]) for one in value}
    here: tuple[bool, bool, list[int]] = (False, True, [])
    gone: tuple[bool, bool, list[int]] = (True, False, [])
    return found == {"Built-In Node": here, "n1-01": gone, "zen3-01": here, "zen5-01": (False, True, [15])}


PLACES: dict[str, list[Entry]] = {
    "queue": [
        item(5, "run-0003", QueueStage.WAITING, "In the quiet period"),
        item(4, "run-0002", QueueStage.WAITING, "In the quiet period"),
        queue((4, QueueStage.WAITING), (5, QueueStage.WAITING)),
        item(4, "run-0002", QueueStage.WAITING, "Finished waiting"),
        item(3, "run-0001", QueueStage.LEFT, number=3, canceled=False, job=JOB),
    ],
    "queue-waiting-executor": [
        item(8, "w2", QueueStage.BUILDABLE, "Waiting for next available executor on \u2018zen3-01\u2019"),
        item(9, "w3", QueueStage.BUILDABLE, "Waiting for next available executor"),
        queue((9, QueueStage.BUILDABLE), (8, QueueStage.BUILDABLE)),
        node("zen3-01", offline=False, connected=True),
    ],
    "queue-other-reasons": [
        triggers("any-job", 1197),
        item(1197, "any", QueueStage.BUILDABLE, "reserved for jobs with matching label expression"),
        triggers("serial-job", 1199),
        item(1199, "s2", QueueStage.BLOCKED, "Build #3 is already in progress"),
        ADMIN,
        triggers(JOB, 1200),
        item(1200, "qd", QueueStage.BUILDABLE, "about to shut down"),
        gives(lambda client: client.controller(), lambda value: value.quieting_down and value.reason == ""),
        ADMIN,
    ],
    "no-matching-label": [
        triggers("nolabel-job", 1195),
        item(1195, "nl-1", QueueStage.BUILDABLE, "no nodes with the label", stuck=True),
        triggers("bench-n1", 1196),
        item(1196, "nl-2", QueueStage.BUILDABLE, "All nodes of label", stuck=True),
        item(1196, "nl-2", QueueStage.BUILDABLE, "\u2018n1-01\u2019 is offline", stuck=True),
        queue((1196, QueueStage.BUILDABLE), (1195, QueueStage.BUILDABLE)),
        LABEL,
        LABEL,
        LABEL,
    ],
    "offline": [
        does(lambda client: client.toggle_offline("zen3-01", "reserved for kernel reboot run-0009")),
        node("zen3-01", temporarily_offline=True, reason="reserved for kernel reboot run-0009"),
        triggers(JOB, 18),
        item(18, "off-1", QueueStage.BUILDABLE, "is offline", stuck=True),
        NotOurs("why a node is held stays as it was said when it was marked"),
        node("zen3-01", temporarily_offline=True, reason="still reserved"),
        does(lambda client: client.toggle_offline("zen3-01")),
        node("zen3-01", offline=False, temporarily_offline=False),
        does(lambda client: client.disconnect("zen3-01", "maintenance")),
        node("zen3-01"),
        node("zen3-01", offline=False, connected=True),
        Ours(
            lambda client, exchange: client.nodes(tree=tree_of(exchange)),
            lambda value: {"Built-In Node", "zen3-01", "zen5-01"} <= {one.name for one in value},
        ),
    ],
    "poll-many": [
        ONE_JOB,
        Ours(lambda client, exchange: client.jobs(tree=tree_of(exchange)), _jobs_understood),
        Ours(lambda client, exchange: client.nodes(tree=tree_of(exchange)), _nodes_understood),
        gives(lambda client: client.queue(), lambda value: value == []),
        gives(lambda client: client.find_builds(JOB, "run-0005"), lambda value: value == [(6, 6)]),
    ],
    "controller-restart": [
        queue(),
        fails(lambda client: client.build(JOB, 61), Missing),
        fails(lambda client: client.queue_item(1166), Missing),
        fails(lambda client: client.queue_item(1167), Missing),
        fails(lambda client: client.queue_item(1168), Missing),
        ONE_JOB,
        queue((1167, QueueStage.BUILDABLE), (1168, QueueStage.BUILDABLE)),
        fails(lambda client: client.build(JOB, 62), Missing),
        fails(lambda client: client.queue_item(1166), Missing),
        item(1167, "ctl-SIGTERM-q2", QueueStage.LEFT, number=63),
        item(1168, "ctl-SIGTERM-q3", QueueStage.BUILDABLE, "no nodes with the label", stuck=True),
        ONE_JOB,
    ],
    "reboot-cycle": [
        build(JOB, 79, ""),
        does(lambda client: client.toggle_offline("zen3-01", "run r77 reboots into test kernel")),
        triggers(JOB, 1194),
        item(1194, "reboot-run", QueueStage.BUILDABLE, "is offline", stuck=True),
        build(JOB, 79, "SUCCESS"),
        gives(lambda client: client.node("zen3-01"), lambda value: value.temporarily_offline and value.connected),
        gives(lambda client: client.node("zen3-01"), lambda value: value.temporarily_offline and not value.connected),
        gives(lambda client: client.node("zen3-01"), lambda value: value.temporarily_offline and value.connected),
        does(lambda client: client.toggle_offline("zen3-01")),
        build(JOB, 80, "SUCCESS", run_id="reboot-run", queue_id=1194),
        CONSOLE,
    ],
}
