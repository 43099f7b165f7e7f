"""The calls that need an admin's account: making jobs and nodes, and reading how they are configured."""

import json
import re
from dataclasses import dataclass
from urllib.parse import quote

from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.client_check import checked, content_of, redirect_into
from server.lab.dispatch.jenkins.client_values import Item, parse_json
from server.lab.dispatch.jenkins.definitions import NodeDefinition
from server.lab.dispatch.jenkins.errors import Garbled

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
