"""Words for the tables: one call of our client for one recorded exchange, and what it must make of the answer."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, parse_qsl

from server.lab.dispatch.jenkins.answers import BuildFacts, Canceled, NodeFacts, QueueItem, QueueStage, Triggered
from server.lab.dispatch.jenkins.configuration import AdminClient
from server.lab.dispatch.jenkins.values import JenkinsError
from tests.jenkins.recordings.files import Exchange


@dataclass(frozen=True)
class Ours:
    """`make` calls the client; `understood` looks at what it gave, or at the error it raised."""

    make: Callable[[AdminClient, Exchange], object]
    understood: Callable[[Any], object]


@dataclass(frozen=True)
class NotOurs:
    """A request that neither the service nor its commands ever send, and why not."""

    reason: str


Entry = Ours | NotOurs


def tree_of(exchange: Exchange) -> str:
    """The recorded projection: clients ask for more or less of one thing by the same call."""
    return str(parse_qs(exchange.request["query"]).get("tree", [""])[0])


def triggers(job: str, queue_id: int, *, folded: bool = False) -> Ours:
    """A trigger with the recorded parameters in their order, and with the recorded delay, or none."""
    return Ours(
        lambda client, exchange: _trigger(client, exchange, job), lambda value: value == Triggered(queue_id, folded)
    )


def trigger_fails(job: str, error: type[JenkinsError], **fields: object) -> Ours:
    return Ours(lambda client, exchange: _trigger(client, exchange, job), raised(error, **fields))


def _trigger(client: AdminClient, exchange: Exchange, job: str) -> Triggered:
    parameters = dict(parse_qsl(exchange.request["body"] or "", keep_blank_values=True))
    if list(parameters) == ["RUN_ID"] and exchange.request["query"]:
        return client.trigger(job, parameters["RUN_ID"])
    delay = parse_qs(exchange.request["query"]).get("delay", [""])[0]
    return client.trigger_with(job, parameters, delay=delay)


def item(queue_id: int, key: str, stage: QueueStage, why: str = "", *, stuck: bool = False, **fields: object) -> Ours:
    def understood(value: QueueItem) -> bool:
        known = (value.id, value.run_id, value.stage, value.stuck) == (queue_id, key, stage, stuck)
        return known and why in value.why and value.since is not None and has(value, **fields)

    return Ours(lambda client, _exchange: client.queue_item(queue_id), understood)


def build(job: str, number: int, result: str, **fields: object) -> Ours:
    """One build; an empty result: it runs."""

    def understood(value: BuildFacts) -> bool:
        known = (value.job, value.number, value.result, value.building) == (job, number, result, result == "")
        return known and has(value, **fields)

    return Ours(lambda client, exchange: client.build(job, number, tree=tree_of(exchange)), understood)


def node(name: str, **fields: object) -> Ours:
    def understood(value: NodeFacts) -> bool:
        return value.name == name and has(value, **fields)

    return Ours(lambda client, exchange: client.node(name, tree=tree_of(exchange)), understood)


def cancel(queue_id: int, became: Canceled) -> Ours:
    return Ours(lambda client, _exchange: client.cancel_item(queue_id), lambda value: value is became)


def does(make: Callable[[AdminClient], object]) -> Ours:
    """A call without an answer: that it raises nothing is all."""
    return Ours(lambda client, _exchange: make(client), lambda value: value is None)


def gives(make: Callable[[AdminClient], object], understood: Callable[[Any], object]) -> Ours:
    return Ours(lambda client, _exchange: make(client), understood)


def fails(make: Callable[[AdminClient], object], error: type[JenkinsError], **fields: object) -> Ours:
    return Ours(lambda client, _exchange: make(client), raised(error, **fields))


def raised(error: type[JenkinsError], **fields: object) -> Callable[[object], bool]:
    return lambda value: type(value) is error and has(value, **fields)


def has(value: object, **fields: object) -> bool:
    return all(getattr(value, name) == wanted for name, wanted in fields.items())


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
