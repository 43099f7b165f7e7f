"""Pieces of a build's log."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlencode

from django.conf import settings

from server.lab.dispatch.jenkins import answers
from server.lab.dispatch.jenkins.answers import (
    RUN_ID,
    BuildFacts,
    Canceled,
    Controller,
    Head,
    JobBuilds,
    JobFacts,
    LogPiece,
    NodeFacts,
    QueueItem,
    Triggered,
)
from server.lab.dispatch.jenkins.http import (
    LARGEST_ANSWER,
    ControllerLine,
    HttpAnswer,
    Wire,
    checked,
    content_of,
    queue_id_of,
    redirect_into,
    take_turn,
)
from server.lab.dispatch.jenkins.values import (
    LARGEST_ID,
    Garbled,
    Missing,
    Rejected,
    Unreachable,
    clean,
)

_OK = 200
# The controller's hidden notes: ESC[8mha: ... ESC[0m. An unclosed one is the beginning of one that was cut.
_NOTE = re.compile("\x1b\\[8mha:[^\x1b]*(?:\x1b\\[0m|$)")


def read_log(answer: HttpAnswer, path: str, start: int) -> LogPiece:
    """The text of one answer. A start beyond the end gives the whole log again: that is told by a smaller size."""
    size = answer.headers.get("X-Text-Size", "")
    known = size.isascii() and size.isdigit() and len(size) <= len(str(LARGEST_ID))
    if answer.status != _OK or not known:
        raise Garbled(f"{path}: answers {answer.status} with X-Text-Size {clean(size, 40)!r}, no log")
    text = _NOTE.sub("", answer.content.decode("utf-8", "replace").replace("\r\n", "\n"))
    repeated = int(size) < start
    return LogPiece(
        text="" if repeated else clean(text, len(text)),
        next_start=int(size),
        more=answer.headers.get("X-More-Data", "").lower() == "true",
        cut=answer.cut,
    )


# A thin client for the few calls that dispatching needs, each of a recorded form. For one thread at a time.
#
# Nothing is tried twice here, and no answer is believed before it was checked: what is wrong is raised as one of the
# errors of errors.py, which say nothing about the attempts.

_FORM = "application/x-www-form-urlencoded"
# As keys are: it stands in an XPath expression between quotes.
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,59}")
# How much of a log is taken at once.
_LARGEST_LOG = 4 * 2**20
# Answers to POST are empty or pages for people, of which only the status counts.
_LARGEST_PAGE = 64 * 2**10
_NO_CONTENT, _SERVER_ERROR = 204, 500


def _no_limit() -> None:
    """For benches and an operator's own commands: every request leaves at once."""


@dataclass
class JenkinsClient:
    """The controller as the dispatcher's user sees it; jobs whose names do not begin with `prefix` are not looked at.

    `turn` is called before each request, `observe` with method and path of each. `head` holds what the newest answers
    told of the controller itself; `requests` counts what was sent.
    """

    wire: Wire
    prefix: str = ""
    turn: Callable[[], None] = _no_limit
    observe: Callable[[str, str], None] | None = None

    def __post_init__(self) -> None:
        self._line = ControllerLine(self.wire)
        self.head = Head()
        self.requests = 0

    @classmethod
    def from_settings(cls) -> Self:
        """The site's controller, below its rate limit."""
        return cls(wire_from_settings(), prefix=settings.JENKINS_PREFIX, turn=take_turn)

    def close(self) -> None:
        self._line.close()

    def trigger(self, job: str, run_id: str) -> Triggered:
        """Start the job for one attempt: a new item of the queue, or the one that waits with this key already."""
        return self.trigger_with(job, {RUN_ID: run_id})

    def trigger_with(self, job: str, parameters: Mapping[str, str], *, delay: str = "0sec") -> Triggered:
        """The same with any parameters. Without a delay ("") the job's quiet period is waited for."""
        path = f"/job/{_word(job)}/buildWithParameters"
        answer = self._post(path, query=f"delay={delay}" if delay else "", form=parameters)
        return queue_id_of(answer, path)

    def queue(self, *, tree: str = answers.QUEUE_TREE) -> list[QueueItem]:
        """All that waits for one of our jobs."""
        return answers.read_queue(self._json("/queue/api/json", tree), "the queue", self.prefix)

    def queue_item(self, queue_id: int) -> QueueItem:
        """One item, until five minutes after it left the queue; then Missing."""
        path = f"/queue/item/{queue_id:d}/api/json"
        return answers.read_queue_item(self._json(path), f"queue item {queue_id}")

    def jobs(self, *, tree: str = answers.JOBS_TREE) -> list[JobBuilds]:
        """All our jobs with their newest 20 builds."""
        return answers.read_jobs(self._json("/api/json", tree), "the jobs", self.prefix)

    def nodes(self, *, tree: str = answers.NODES_TREE) -> list[NodeFacts]:
        """All nodes of the controller, the built-in one among them."""
        return answers.read_nodes(self._json("/computer/api/json", tree), "the nodes")

    def node(self, node: str, *, tree: str = answers.NODE_TREE) -> NodeFacts:
        return answers.read_node(self._json(f"/computer/{_word(node)}/api/json", tree), f"node {node}")

    def find_builds(self, job: str, run_id: str) -> list[tuple[int, int | None]]:
        """Builds with that key among the job's newest 100, searched there: (number, queue id), newest first."""
        if not _KEY.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is no attempt key")
        path = f"/job/{_word(job)}/api/xml"
        xpath = f"//allBuild[action/parameter[name='{RUN_ID}' and value='{run_id}']]"
        query = f"tree={_tree(answers.SEARCH_TREE)}&xpath={quote(xpath, safe='/')}&wrapper=found"
        answer = checked(self._get(path, query), path)
        return answers.read_found(content_of(answer, path, "application/xml"), f"search in {job}", run_id)

    def build(self, job: str, number: int, *, tree: str = answers.BUILD_TREE) -> BuildFacts:
        path = f"/job/{_word(job)}/{number:d}/api/json"
        return answers.read_build(self._json(path, tree), f"build {number} of {job}", job, number)

    def log(self, job: str, number: int, start: int = 0) -> LogPiece:
        """What the build wrote since `start`, which is 0 or the `next_start` of the piece before."""
        path = f"/job/{_word(job)}/{number:d}/logText/progressiveText"
        return read_log(checked(self._get(path, f"start={start:d}", _LARGEST_LOG), path), path, start)

    def job_parameters(self, job: str, *, tree: str = answers.JOB_TREE) -> JobFacts:
        """What the dispatcher's user can see of a job's definition."""
        return answers.read_job(self._json(f"/job/{_word(job)}/api/json", tree), f"job {job}")

    def controller(self, *, tree: str = answers.CONTROLLER_TREE) -> Controller:
        """The cheapest request there is: whether the controller answers us, and is about to shut down."""
        return answers.read_controller(self._json("/api/json", tree), "the controller")

    def cancel_item(self, queue_id: int) -> Canceled:
        """Take an item out of the queue. Only the next look tells for sure."""
        path = "/queue/cancelItem"
        answer = self._send("POST", path, query=f"id={queue_id:d}")
        try:
            checked(answer, path)
        except Missing:
            return Canceled.UNKNOWN
        except Rejected as error:
            if error.status == _SERVER_ERROR:
                return Canceled.STARTED
            raise
        if answer.status != _NO_CONTENT:
            raise Garbled(f"{path}: answers {answer.status}")
        return Canceled.DONE

    def stop(self, job: str, number: int) -> None:
        """Ask a build to end: its processes get SIGTERM, never SIGKILL. For an ended one it does nothing."""
        path = f"/job/{_word(job)}/{number:d}/stop"
        redirect_into("/job/", self._post(path), path, self.wire.url)

    def toggle_offline(self, node: str, message: str = "") -> None:
        """Mark a node offline for a reason, or online again. It is a toggle: read the node's state first."""
        path = f"/computer/{_word(node)}/toggleOffline"
        query = urlencode({"offlineMessage": message}) if message else ""
        redirect_into("/computer/", self._post(path, query=query), path, self.wire.url)

    def disconnect(self, node: str, message: str = "") -> None:
        """Cut the connection to a node's agent, which may come back a second later. Ends a frozen agent's builds."""
        path = f"/computer/{_word(node)}/doDisconnect"
        query = urlencode({"offlineMessage": message}) if message else ""
        redirect_into("/computer/", self._post(path, query=query), path, self.wire.url)

    def _json(self, path: str, tree: str = "") -> bytes:
        answer = checked(self._get(path, f"tree={_tree(tree)}" if tree else ""), path)
        return content_of(answer, path, "application/json")

    def _get(self, path: str, query: str = "", largest: int = LARGEST_ANSWER) -> HttpAnswer:
        return self._send("GET", path, query=query, largest=largest)

    def _post(self, path: str, *, query: str = "", form: Mapping[str, str] | None = None) -> HttpAnswer:
        content = urlencode(form).encode("ascii") if form else b""
        answer = self._send("POST", path, query=query, content=content, content_type=_FORM if form else "")
        return checked(answer, path)

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: str = "",
        content: bytes = b"",
        content_type: str = "",
        largest: int = _LARGEST_PAGE,
    ) -> HttpAnswer:
        self.turn()
        if self.observe is not None:
            self.observe(method, f"{path}?{query}" if query else path)
        self.requests += 1
        answer = self._line.send(method, path, query=query, content=content, content_type=content_type, largest=largest)
        # An answer without them (a redirect, a log) leaves what is known of session and version.
        told = answer.head
        self.head = Head(
            session=told.session or self.head.session,
            version=told.version or self.head.version,
            date=told.date,
            skew_seconds=told.skew_seconds,
        )
        return answer


def wire_from_settings() -> Wire:
    """Where the site's controller is; raises Unreachable when the settings name none."""
    if not settings.JENKINS_URL:
        raise Unreachable("TIDEMARK_JENKINS_URL is not set", maybe_done=False)
    return Wire(
        url=settings.JENKINS_URL,
        user=settings.JENKINS_USER,
        token_file=Path(settings.JENKINS_TOKEN_FILE or "/nonexistent/TIDEMARK_JENKINS_TOKEN_FILE-is-not-set"),
        ca_file=Path(settings.JENKINS_CA_FILE) if settings.JENKINS_CA_FILE else None,
        seconds=settings.JENKINS_TIMEOUT_SECONDS,
    )


def _word(name: str) -> str:
    """One part of a path. A name that would lead elsewhere is a mistake of ours."""
    if not name or name in {".", ".."}:
        raise ValueError(f"{name!r} is no name of a job or node")
    return quote(name, safe="")


def _tree(tree: str) -> str:
    return quote(tree, safe=",*")
