"""Recordings of what is refused, and of what an admin's account makes."""

import json
from urllib.parse import parse_qsl

from server.lab.dispatch.jenkins.configuration import AdminClient
from server.lab.dispatch.jenkins.jobs import NodeDefinition
from server.lab.dispatch.jenkins.values import Forbidden, Missing, Rejected, TokenRefused
from tests.jenkins.recordings.calls import (
    Entry,
    NotOurs,
    Ours,
    fails,
    gives,
    node,
    raised,
    trigger_fails,
    triggers,
)
from tests.jenkins.recordings.files import Exchange
from tests.jenkins.recordings.places import queue
from tests.jenkins.recordings.runs import JOB

ANONYMOUS = NotOurs("every request of ours carries a token")
CRUMB = NotOurs("crumbs belong to passwords; ours are tokens, which need none")
SECRET = "0123456789abcdef" * 4


def _create_node(client: AdminClient, exchange: Exchange) -> None:
    wishes = json.loads(dict(parse_qsl(exchange.request["body"]))["json"])
    definition = NodeDefinition(
        name=wishes["name"],
        executors=int(wishes["numExecutors"]),
        labels=wishes["labelString"],
        folder=wishes["remoteFS"],
        description=wishes["nodeDescription"],
        xml="",
    )
    client.create_node(definition)


def _create_job(name: str) -> Ours:
    return Ours(lambda client, exchange: client.create_job(name, exchange.request["body"]), lambda value: value is None)


def _refused_job(name: str, **fields: object) -> Ours:
    kind = Forbidden if "permission" in fields else Rejected
    return Ours(lambda client, exchange: client.create_job(name, exchange.request["body"]), raised(kind, **fields))


RIGHTS: dict[str, list[Entry]] = {
    "bad-credentials-401": [
        fails(lambda client: client.controller(tree=""), TokenRefused, maybe_done=False),
        trigger_fails(JOB, TokenRefused, maybe_done=False),
        fails(lambda client: client.controller(tree=""), TokenRefused),
        ANONYMOUS,
        ANONYMOUS,
    ],
    "crumb-missing-403": [
        trigger_fails(JOB, Forbidden, permission=""),
        CRUMB,
        CRUMB,
        CRUMB,
        triggers(JOB, 2),
    ],
    "forbidden-403": [
        trigger_fails(JOB, Forbidden, permission="hudson.model.Item.Build"),
        _refused_job("q", permission="hudson.model.Item.Create"),
        Ours(_create_node, raised(Forbidden, permission="hudson.model.Computer.Create")),
        fails(lambda client: client.job_xml(JOB), Forbidden, permission="hudson.model.Item.Configure"),
        queue(),
    ],
    "create-job": [
        _create_job(JOB),
        _refused_job(JOB, status=400, maybe_done=False),
        gives(
            lambda client: client.job_parameters(JOB, tree=""),
            lambda value: (
                value.buildable
                and value.name == JOB
                and value.description.startswith("Dispatch job")
                and value.parameters[0] == ("RUN_ID", "StringParameterDefinition")
                and len(value.parameters) == 4
            ),
        ),
        Ours(lambda client, exchange: client.update_job(JOB, exchange.request["body"]), lambda value: value is None),
        _refused_job("broken", status=500),
    ],
    "create-node": [
        Ours(_create_node, lambda value: value is None),
        Ours(_create_node, raised(Rejected, status=400)),
        node("zen3-01", offline=True, connected=False, reason=""),
        # The secret was taken out of the recording: something of its form stands in for it.
        gives(lambda client: client.node_secret("zen3-01"), lambda value: value == SECRET),
        gives(lambda client: client.node_xml("zen3-01"), lambda value: b"<mode>EXCLUSIVE</mode>" in value),
        Ours(
            lambda client, exchange: client.update_node("zen3-01", exchange.request["body"]),
            lambda value: value is None,
        ),
        NotOurs("the labels of all nodes are read by one request"),
        fails(lambda client: client.node("nosuch", tree=""), Missing),
    ],
}
