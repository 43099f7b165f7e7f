"""Making the controller's jobs and nodes as the lab needs them, step by step; nothing is ever deleted."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.apply_client import AdminClient
from server.lab.dispatch.jenkins.client import JenkinsError, Missing
from server.lab.dispatch.jenkins.definitions import JobDefinition, NodeDefinition, Wanted, own_mark
from server.lab.dispatch.jenkins.definitions_compared import description_of, difference, with_mark_of


class Finding(enum.Enum):
    """How a job or node is, compared with its definition."""

    SAME = "as defined"
    MISSING = "not there"
    DIFFERENT = "different"
    # A node that somebody else described: it is used as it is.
    FOREIGN = "made by somebody else"
    # Ours by its name or description, and in the lab no more.
    LEFT_OVER = "no longer in the lab"


@dataclass(frozen=True)
class Step:
    """One job or node: how it is, how it differs, and what puts that right (None: nothing of ours does)."""

    what: str
    name: str
    finding: Finding
    diff: str = ""
    mend: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failure:
    """A step that could not be looked at or put right."""

    what: str
    name: str
    reason: str


def look(client: AdminClient, wanted: Wanted) -> Iterator[Step | Failure]:
    """Compare everything, nodes first; one that fails keeps no other from being looked at."""
    for node in wanted.nodes.values():
        yield _attempted("node", node.name, partial(_look_at_node, client, node))
    for job in wanted.jobs.values():
        yield _attempted("job", job.name, partial(_look_at_job, client, job))
    yield from _left_over(client, wanted)


def mended(step: Step) -> Step | Failure:
    """Put one step right; what went wrong is told, not raised."""

    def mend() -> Step:
        if step.mend is not None:
            step.mend()
            if step.what == "job":
                jobs.forget(step.name)
        return step

    return _attempted(step.what, step.name, mend)


def _attempted(what: str, name: str, act: Callable[[], Step]) -> Step | Failure:
    try:
        return act()
    except JenkinsError as error:
        return Failure(what, name, error.message)


def _look_at_job(client: AdminClient, job: JobDefinition) -> Step:
    try:
        there = client.job_xml(job.name)
    except Missing:
        return Step("job", job.name, Finding.MISSING, mend=partial(client.create_job, job.name, job.xml))
    diff = difference(there, job.xml, job.name)
    if not diff:
        # A person may have put it right.
        jobs.forget(job.name)
        return Step("job", job.name, Finding.SAME)
    return Step("job", job.name, Finding.DIFFERENT, diff, partial(client.update_job, job.name, job.xml))


def _look_at_node(client: AdminClient, node: NodeDefinition) -> Step:
    try:
        there = client.node_xml(node.name)
    except Missing:
        return Step("node", node.name, Finding.MISSING, mend=partial(_create_node, client, node))
    ours = with_mark_of(there, node.xml)
    diff = difference(there, ours, node.name)
    if not diff:
        return Step("node", node.name, Finding.SAME)
    if not description_of(there).startswith(own_mark()):
        return Step("node", node.name, Finding.FOREIGN, diff)
    return Step("node", node.name, Finding.DIFFERENT, diff, partial(_update_node, client, node))


def _create_node(client: AdminClient, node: NodeDefinition) -> None:
    client.create_node(node)
    # The form has no say in all that the definition has.
    client.update_node(node.name, node.xml)


def _update_node(client: AdminClient, node: NodeDefinition) -> None:
    # Read again: a session may have begun or ended while the difference was being shown.
    client.update_node(node.name, with_mark_of(client.node_xml(node.name), node.xml))


def _left_over(client: AdminClient, wanted: Wanted) -> Iterator[Step | Failure]:
    """Jobs and nodes with our mark that the lab does not need. Those of another service there are its own."""
    try:
        jobs_there = [job.name for job in client.jobs() if job.name not in wanted.jobs]
        left = [name for name in jobs_there if _is_ours(partial(client.job_xml, name))]
        nodes_there = [name for name in client.labels() if name not in wanted.nodes]
        nodes = [name for name in nodes_there if _is_ours(partial(client.node_xml, name))]
    except JenkinsError as error:
        yield Failure("the list", "of jobs and nodes", error.message)
        return
    yield from (Step("job", name, Finding.LEFT_OVER) for name in left)
    yield from (Step("node", name, Finding.LEFT_OVER) for name in nodes)


def _is_ours(configuration: Callable[[], bytes]) -> bool:
    try:
        return description_of(configuration()).startswith(own_mark())
    except JenkinsError:
        # The built-in node has no configuration of this kind; what is hidden is none of ours.
        return False
