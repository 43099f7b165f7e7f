"""Which path does what."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.jenkins.server import answers, routes_jobs, routes_nodes, routes_queue
from tests.jenkins.server.answers import Answer, AnswerError
from tests.jenkins.server.auth import ADMINISTER, READ
from tests.jenkins.server.controller import Controller
from tests.jenkins.server.labels import matches
from tests.jenkins.server.nodes import BuiltIn
from tests.jenkins.server.request import Request
from tests.jenkins.server.tree import Exported

_Handler = Callable[..., Answer]


@dataclass(frozen=True)
class Root(Exported):
    """The controller's own page."""

    controller: Controller

    def exported(self) -> Mapping[str, object]:
        jobs = self.controller.jobs
        return {
            "_class": "hudson.model.Hudson",
            "jobs": [jobs[name] for name in sorted(jobs)],
            "mode": "EXCLUSIVE",
            "nodeDescription": "the Jenkins controller's built-in node",
            "nodeName": "",
            "numExecutors": 0,
            "quietDownReason": None,
            "quietingDown": self.controller.quieting,
            "url": f"{self.controller.url}/",
            "useCrumbs": True,
            "useSecurity": True,
        }


@dataclass(frozen=True)
class Computers(Exported):
    """All nodes."""

    controller: Controller

    def exported(self) -> Mapping[str, object]:
        nodes = self.controller.nodes
        return {
            "_class": "hudson.model.ComputerSet",
            "busyExecutors": len(self.controller.running()),
            "computer": [BuiltIn(), *(nodes[name] for name in sorted(nodes))],
            "displayName": "Nodes",
            "totalExecutors": sum(node.executors for node in nodes.values() if not node.offline),
        }


@dataclass(frozen=True)
class Label(Exported):
    """A label expression and the nodes that it fits: any expression has a page."""

    controller: Controller
    expression: str

    def exported(self) -> Mapping[str, object]:
        nodes = [node for node in self.controller.nodes.values() if matches(self.expression, node.labels)]
        up = [node for node in nodes if not node.offline]
        busy = sum(len(node.running()) for node in up)
        kind = "LabelExpression$And" if "&&" in self.expression else "LabelAtom"
        return {
            "_class": f"hudson.model.labels.{kind}",
            "actions": [],
            "busyExecutors": busy,
            "clouds": [],
            "description": None,
            "idleExecutors": sum(node.executors for node in up) - busy,
            "loadStatistics": {"_class": "hudson.model.Label$1"},
            "name": self.expression,
            "nodes": [{"_class": "hudson.slaves.DumbSlave", "nodeName": node.name} for node in nodes],
            "offline": not up,
            "tiedJobs": [job for job in self.controller.jobs.values() if job.label == self.expression],
            "totalExecutors": sum(node.executors for node in up),
            "propertiesList": [],
        }


def _root(request: Request, form: str) -> Answer:
    return request.show(Root(request.controller), form, "hudson")


def _computers(request: Request, form: str) -> Answer:
    return request.show(Computers(request.controller), form, "computerSet")


def _label(request: Request, expression: str, form: str) -> Answer:
    return request.show(Label(request.controller, expression), form, "labelAtom")


def _quiet(request: Request, what: str) -> Answer:
    request.need_post()
    request.need(ADMINISTER)
    request.controller.quieting = what == "quietDown"
    return answers.redirect("/")


_FORM = r"api/(json|xml)"
_ROUTES: tuple[tuple[re.Pattern[str], _Handler], ...] = tuple(
    (re.compile(pattern), handler)
    for pattern, handler in (
        (rf"/{_FORM}", _root),
        (rf"/queue/{_FORM}", routes_queue.queue),
        (rf"/queue/item/(\d+)/{_FORM}", routes_queue.item),
        (r"/queue/cancelItem", routes_queue.cancel),
        (rf"/computer/{_FORM}", _computers),
        (r"/computer/doCreateItem", routes_nodes.create),
        (rf"/computer/([^/]+)/{_FORM}", routes_nodes.show),
        (r"/computer/([^/]+)/config\.xml", routes_nodes.config),
        (r"/computer/([^/]+)/jenkins-agent\.jnlp", routes_nodes.launch_file),
        (r"/computer/([^/]+)/toggleOffline", routes_nodes.toggle),
        (r"/computer/([^/]+)/changeOfflineCause", routes_nodes.change_cause),
        (r"/computer/([^/]+)/doDisconnect", routes_nodes.disconnect),
        (r"/computer/([^/]+)/doDelete", routes_nodes.delete),
        (rf"/label/(.+)/{_FORM}", _label),
        (r"/createItem", routes_jobs.create),
        (rf"/job/([^/]+)/{_FORM}", routes_jobs.show),
        (r"/job/([^/]+)/config\.xml", routes_jobs.config),
        (r"/job/([^/]+)/doDelete", routes_jobs.delete),
        (r"/job/([^/]+)/build", routes_jobs.build_without_parameters),
        (r"/job/([^/]+)/buildWithParameters", routes_jobs.trigger),
        (rf"/job/([^/]+)/(\d+)/{_FORM}", routes_jobs.show_build),
        (r"/job/([^/]+)/(\d+)/stop", routes_jobs.stop),
        (r"/job/([^/]+)/(\d+)/consoleText", routes_jobs.console),
        (r"/job/([^/]+)/(\d+)/logText/progressiveText", routes_jobs.progressive),
        (r"/job/([^/]+)/(\d+)/artifact/(.+)", routes_jobs.artifact),
        (r"/(quietDown|cancelQuietDown)", _quiet),
    )
)


def answer(request: Request) -> Answer:
    """The answer to a request of somebody who logged in. The caller holds the controller's lock."""
    try:
        request.need(READ)
        for pattern, handler in _ROUTES:
            found = pattern.fullmatch(request.path)
            if found is not None:
                return handler(request, *found.groups())
    except AnswerError as error:
        return error.answer
    return answers.not_found()
