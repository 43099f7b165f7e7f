"""Making the controller's jobs and nodes as the lab needs them, step by step; nothing is ever deleted."""

import difflib
import enum
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote

from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.http import checked, content_of, redirect_into
from server.lab.dispatch.jenkins.jobs import JobDefinition, NodeDefinition, Wanted, own_mark
from server.lab.dispatch.jenkins.values import Garbled, Item, JenkinsError, Missing, parse_json

# XML 1.1, which Jenkins declares, is not known to the parser; what it allows in addition we never write.
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
# A node's mark as offline is part of its configuration for Jenkins, and gone when it is sent one without.
_MARK = re.compile(r"[ \t]*<temporaryOfflineCause\b(?:[^>]*/>|.*?</temporaryOfflineCause>)\n?", re.DOTALL)
# What Jenkins writes for a setting that nobody made.
_DEFAULTS = frozenset({"", "false"})


def difference(there: bytes, ours: str, name: str) -> str:
    """What would change, as a unified diff of both in one form; empty if they mean the same."""
    before, after = normalized(there.decode("utf-8", "replace")), normalized(ours)
    if before == after:
        return ""
    lines = difflib.unified_diff(before, after, f"{name} on the controller", f"{name} as defined", lineterm="")
    return "\n".join(lines)


def with_mark_of(there: bytes, ours: str) -> str:
    """Our configuration of a node with the mark that it bears: a session's or a person's, never ours to end."""
    mark = _MARK.search(there.decode("utf-8", "replace"))
    return ours.replace("</slave>", f"{mark[0]}</slave>") if mark else ours


def normalized(text: str) -> list[str]:
    """The configuration as lines: no order among settings, no versions of plugins, nothing that is a default anyway.

    What cannot be parsed is given back as it is, and so differs from ours.
    """
    body = _DECLARATION.sub("", text)
    if "<!" in body:
        return text.splitlines()
    try:
        return list(_lines(ET.fromstring(body), ""))  # noqa: S314 (there is no declaration in it)
    except ET.ParseError:
        return text.splitlines()


def description_of(content: bytes) -> str:
    """The description in a configuration; empty if there is none or it cannot be read."""
    body = _DECLARATION.sub("", content.decode("utf-8", "replace"))
    if "<!" in body:
        return ""
    try:
        return ET.fromstring(body).findtext("description") or ""  # noqa: S314 (there is no declaration in it)
    except ET.ParseError:
        return ""


def _lines(element: ET.Element, indent: str) -> list[str]:
    attributes = "".join(f' {key}="{value}"' for key, value in sorted(element.attrib.items()) if key != "plugin")
    text = (element.text or "").strip().replace("\r\n", "\n")
    children = [_lines(child, f"{indent}  ") for child in element]
    # Two steps of one job have an order, settings of different names have none.
    children = sorted((lines for lines in children if lines), key=lambda lines: lines[0].split(">")[0])
    if not children and not attributes and text in _DEFAULTS and indent:
        return []
    own = [f"{indent}<{element.tag}{attributes}>", *(f"{indent}  {line}" for line in text.splitlines())]
    return own + [line for lines in children for line in lines]


_LABELS_TREE = "computer[displayName,offline,assignedLabels[name]]"
_SECRET = re.compile(rb"<argument>([0-9a-f]{64})</argument>")
_XML = "application/xml"
_OK = 200


@dataclass
class AdminClient(JenkinsClient):
    """The controller as an admin sees it."""

    def job_xml(self, job: str) -> bytes:
        return self._config(f"/job/{quote(job, safe='')}/config.xml")

    def create_job(self, job: str, xml: str) -> None:
        self._put("/createItem", xml, query=f"name={quote(job, safe='')}")

    def update_job(self, job: str, xml: str) -> None:
        self._put(f"/job/{quote(job, safe='')}/config.xml", xml)

    def node_xml(self, node: str) -> bytes:
        return self._config(f"/computer/{quote(node, safe='')}/config.xml")

    def create_node(self, definition: NodeDefinition) -> None:
        """Make the node with what its form asks for; the rest is told by `update_node`."""
        kind = "hudson.slaves.DumbSlave"
        wishes = {
            "name": definition.name,
            "nodeDescription": definition.description,
            "numExecutors": str(definition.executors),
            "remoteFS": definition.folder,
            "labelString": definition.labels,
            "mode": "EXCLUSIVE",
            "type": kind,
            "retentionStrategy": {"stapler-class": "hudson.slaves.RetentionStrategy$Always"},
            "nodeProperties": {"stapler-class-bag": "true"},
            "launcher": {"stapler-class": "hudson.slaves.JNLPLauncher", "webSocket": True},
        }
        path = "/computer/doCreateItem"
        form = {"name": definition.name, "type": kind, "json": json.dumps(wishes)}
        redirect_into("/computer/", self._post(path, form=form), path, self.wire.url)

    def update_node(self, node: str, xml: str) -> None:
        self._put(f"/computer/{quote(node, safe='')}/config.xml", xml)

    def node_secret(self, node: str) -> str:
        """What the node's agent shows the controller. It opens the node to whoever has it."""
        path = f"/computer/{quote(node, safe='')}/jenkins-agent.jnlp"
        answer = checked(self._get(path), path)
        found = _SECRET.search(content_of(answer, path, "application/x-java-jnlp-file"))
        if found is None:
            raise Garbled(f"{path}: no secret in it")
        return found[1].decode("ascii")

    def labels(self) -> dict[str, frozenset[str]]:
        """All nodes with their labels, each node's own name among them."""
        nodes = Item(parse_json(self._json("/computer/api/json", _LABELS_TREE), "the nodes"), "the nodes")
        return {
            node.name("displayName"): frozenset(label.name("name") for label in node.items_or_none("assignedLabels"))
            for node in nodes.items("computer")
        }

    def _config(self, path: str) -> bytes:
        return content_of(checked(self._get(path), path), path, _XML)

    def _put(self, path: str, xml: str, query: str = "") -> None:
        answer = self._send("POST", path, query=query, content=xml.encode(), content_type=_XML)
        if checked(answer, path).status != _OK:
            raise Garbled(f"{path}: answers {answer.status} to a configuration")


class Agreement(enum.Enum):
    """How a job or node is, compared with its definition."""

    SAME = "as defined"
    MISSING = "not there"
    DIFFERENT = "different"
    # A node that somebody else described: it is used as it is.
    FOREIGN = "made by somebody else"
    # Ours by its name or description, and in the lab no more.
    LEFT_OVER = "no longer in the lab"


@dataclass(frozen=True)
class Amendment:
    """One job or node: how it is, how it differs, and what puts that right (None: nothing of ours does)."""

    what: str
    name: str
    finding: Agreement
    diff: str = ""
    mend: Callable[[], None] | None = None


@dataclass(frozen=True)
class Failure:
    """A step that could not be looked at or put right."""

    what: str
    name: str
    reason: str


def look(client: AdminClient, wanted: Wanted) -> Iterator[Amendment | Failure]:
    """Compare everything, nodes first; one that fails keeps no other from being looked at."""
    for node in wanted.nodes.values():
        yield _attempted("node", node.name, partial(_look_at_node, client, node))
    for job in wanted.jobs.values():
        yield _attempted("job", job.name, partial(_look_at_job, client, job))
    yield from _left_over(client, wanted)


def mended(step: Amendment) -> Amendment | Failure:
    """Put one step right; what went wrong is told, not raised."""

    def mend() -> Amendment:
        if step.mend is not None:
            step.mend()
            if step.what == "job":
                jobs.forget(step.name)
        return step

    return _attempted(step.what, step.name, mend)


def _attempted(what: str, name: str, act: Callable[[], Amendment]) -> Amendment | Failure:
    try:
        return act()
    except JenkinsError as error:
        return Failure(what, name, error.message)


def _look_at_job(client: AdminClient, job: JobDefinition) -> Amendment:
    try:
        there = client.job_xml(job.name)
    except Missing:
        return Amendment("job", job.name, Agreement.MISSING, mend=partial(client.create_job, job.name, job.xml))
    diff = difference(there, job.xml, job.name)
    if not diff:
        # A person may have put it right.
        jobs.forget(job.name)
        return Amendment("job", job.name, Agreement.SAME)
    return Amendment("job", job.name, Agreement.DIFFERENT, diff, partial(client.update_job, job.name, job.xml))


def _look_at_node(client: AdminClient, node: NodeDefinition) -> Amendment:
    try:
        there = client.node_xml(node.name)
    except Missing:
        return Amendment("node", node.name, Agreement.MISSING, mend=partial(_create_node, client, node))
    ours = with_mark_of(there, node.xml)
    diff = difference(there, ours, node.name)
    if not diff:
        return Amendment("node", node.name, Agreement.SAME)
    if not description_of(there).startswith(own_mark()):
        return Amendment("node", node.name, Agreement.FOREIGN, diff)
    return Amendment("node", node.name, Agreement.DIFFERENT, diff, partial(_update_node, client, node))


def _create_node(client: AdminClient, node: NodeDefinition) -> None:
    client.create_node(node)
    # The form has no say in all that the definition has.
    client.update_node(node.name, node.xml)


def _update_node(client: AdminClient, node: NodeDefinition) -> None:
    # Read again: a session may have begun or ended while the difference was being shown.
    client.update_node(node.name, with_mark_of(client.node_xml(node.name), node.xml))


def _left_over(client: AdminClient, wanted: Wanted) -> Iterator[Amendment | Failure]:
    """Jobs and nodes with our mark that the lab does not need. Those of another service there are its own."""
    try:
        jobs_there = [job.name for job in client.jobs() if job.name not in wanted.jobs]
        left = [name for name in jobs_there if _is_ours(partial(client.job_xml, name))]
        nodes_there = [name for name in client.labels() if name not in wanted.nodes]
        nodes = [name for name in nodes_there if _is_ours(partial(client.node_xml, name))]
    except JenkinsError as error:
        yield Failure("the list", "of jobs and nodes", error.message)
        return
    yield from (Amendment("job", name, Agreement.LEFT_OVER) for name in left)
    yield from (Amendment("node", name, Agreement.LEFT_OVER) for name in nodes)


def _is_ours(configuration: Callable[[], bytes]) -> bool:
    try:
        return description_of(configuration()).startswith(own_mark())
    except JenkinsError:
        # The built-in node has no configuration of this kind; what is hidden is none of ours.
        return False
