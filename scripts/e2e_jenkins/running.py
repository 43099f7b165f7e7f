"""What one run works with, and the service's rounds while something is waited for."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from scripts.e2e_jenkins.agents import Agents
from scripts.e2e_jenkins.cleaning import HousekeepingClient
from scripts.e2e_jenkins.report import Report, StepError
from scripts.e2e_jenkins.site import Site
from server.builds.models import Build
from server.lab.models import Attempt, JenkinsRun, Session
from server.lab.recovery import sweep
from server.lab.rounds import run_round
from server.lab.scheduling import queue_in_order

_PAUSE_SECONDS = 0.2


@dataclass
class Run:
    """One run; `admin` is the account that makes and deletes, `patience` how long one wait may take, in seconds."""

    site: Site
    admin: HousekeepingClient
    agents: Agents
    report: Report
    patience: float
    restart_command: str = ""

    @property
    def nodes(self) -> tuple[str, str]:
        return self.site.builder.node_name, self.site.machine.node_name

    def until(self, what: str, condition: Callable[[], bool], *, patience: float | None = None) -> None:
        """Make the service's rounds until it is so; raises StepError that says what was waited for."""
        end = time.monotonic() + (patience or self.patience)
        while True:
            run_round()
            sweep()
            if condition():
                return
            if time.monotonic() > end:
                raise StepError(f"{what}: not within {patience or self.patience:g} s; {attempts_now()}")
            time.sleep(_PAUSE_SECONDS)

    def connect(self, node: str) -> None:
        """Start the node's Jenkins agent and wait until the controller knows it."""
        self.agents.start(node, self.admin.node_secret(node))
        self.until(f"the agent of {node} connects", lambda: self.admin.node(node).connected)


def newest(work: Build | Session) -> Attempt:
    attempt = work.attempts.order_by("-number").first()
    if attempt is None:
        raise StepError(f"there is no attempt at {work}")
    return attempt


def state_of(work: Build | Session) -> str:
    """The state of its newest attempt; empty if there is none yet."""
    attempt = work.attempts.order_by("-number").first()
    return attempt.state if attempt else ""


def run_of(attempt: Attempt) -> JenkinsRun:
    return JenkinsRun.objects.get(attempt=attempt)


def attempts_now() -> str:
    """All attempts and what waits, in words, for a step that failed."""
    rows = [f"{row.key} {row.state}: {row.reason} {_seen(row)}" for row in Attempt.objects.order_by("id")]
    waiting = [f"{wait.kind} {wait.id} waits: {wait.reason}" for wait in queue_in_order()]
    return "; ".join(rows + waiting) or "no attempt"


def _seen(attempt: Attempt) -> str:
    run = JenkinsRun.objects.filter(attempt=attempt).first()
    return f"({run.job} #{run.number} {run.result or run.why})" if run else ""


def expect(condition: object, said: str) -> None:
    if not condition:
        raise StepError(said)
