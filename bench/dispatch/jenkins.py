"""The test server that plays Jenkins, as a process of its own."""

import base64
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.db import connection

from bench.kit import ROOT
from bench.table import table
from server.lab.attempts.boots import BootReport, start_boot
from server.lab.attempts.ends import end_attempt
from server.lab.attempts.life import claim_attempt
from server.lab.dispatch.jenkins.jobs import wanted
from server.lab.dispatch.jenkins.models import JenkinsController
from server.lab.models import Attempt, Boot, Machine, Session
from server.lab.rounds import run_round
from server.results.measurements import Values, record_boot
from server.results.models import Measurement
from tests.builders import build_case, build_machine, build_metric, build_session

# Restarts, lost agents and the like are as fast as in tests; nothing of it happens here.
_FASTER = "50"


@dataclass(frozen=True)
class Controller:
    """A running one. `tokens` are those of all its users."""

    url: str
    user: str
    token: str
    tokens: dict[str, str]

    def define_jobs(self) -> None:
        """The jobs that the lab needs, made as an admin makes them."""
        for job in wanted().jobs.values():
            self._call(f"/createItem?name={quote(job.name)}", job.xml.encode())

    def request_times(self) -> list[float]:
        """When each request of the dispatcher's user arrived."""
        times: list[float] = self._call(f"/testing/requests?user={self.user}")["times"]
        return times

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{path}", body)  # noqa: S310 (the server just started)
        login = base64.b64encode(f"admin:{self.tokens['admin']}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        request.add_header("Content-Type", "application/xml")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (as above)
            return json.loads(answer.read() or b"{}")  # type: ignore[no-any-return]


@contextmanager
def controller(nodes: Sequence[str]) -> Iterator[Controller]:
    """With these nodes, connected; it ends with the block."""
    command = [sys.executable, "-m", "tests.jenkins.server", "--faster", _FASTER]
    for node in nodes:
        command += ["--node", node]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Controller(**json.loads(process.stdout.readline()))
        finally:
            process.stdin.close()


MACHINES, SESSIONS, SESSION_SECONDS = 40, 500, 14.0
MOST_REQUESTS, MOST_ROUND_SECONDS, MOST_PER_SECOND = 6, 0.5, 5.0
# 500 queued sessions over 40 machines, dispatched through the test server that plays Jenkins.
#
#     python -m bench.scratch_database bench.dispatch.jenkins [SESSIONS] [SECONDS OF ONE SESSION]
#
# The controller is a process of its own, its jobs run real shell scripts; the rounds are those of the service, with
# its rate limit. Agents are simulated: each holds its job open, and calls what the agents' API calls.

# As the worker's task leaves between two rounds.
_BETWEEN_ROUNDS_SECONDS = 1.0
# Requests that were saved up may leave at once when a run begins.
_BURST = 5
_BOOTS_PER_SIDE = 2
_LONGEST_SECONDS = 1800.0
_AGENT = """#!/bin/sh
mkfifo {folder}/end/$2 && touch {folder}/started/$2 && read -r _ < {folder}/end/$2
"""


@dataclass
class Run:
    """What was seen: seconds and requests of each round, when each request reached the controller, how all ended."""

    rounds: list[float] = field(default_factory=list)
    reconciling: list[float] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return (len(self.arrivals) - _BURST) / self.seconds

    @property
    def busiest_ten_seconds(self) -> float:
        """The most requests within ten seconds, for one second, less the burst."""
        times = sorted(self.arrivals)
        most, first = 0, 0
        for last, at in enumerate(times):
            while at - times[first] > 10:  # noqa: PLR2004 (ten seconds)
                first += 1
            most = max(most, last - first + 1)
        return (most - _BURST) / 10


class Agents:
    """All machines' agents in one: claims what jobs have started, and ends it when its time is over."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.working: dict[str, tuple[float, str]] = {}

    def step(self) -> None:
        for file in (self.folder / "started").iterdir():
            file.unlink()
            agent = uuid.uuid4().hex
            claim_attempt(Attempt.objects.get(key=file.name), agent)
            self.working[file.name] = (time.monotonic() + self.seconds, agent)
        for key, (ends_at, agent) in list(self.working.items()):
            if time.monotonic() > ends_at:
                del self.working[key]
                self._finish(key, agent)

    def _finish(self, key: str, agent: str) -> None:
        attempt = Attempt.objects.select_related("session__base_build", "session__patched_build").get(key=key)
        assert attempt.session is not None
        for boot in attempt.session.boots.order_by("position"):
            start_boot(attempt=attempt, agent=agent, position=boot.position)
            kernel = attempt.session.base_build if boot.arm == Boot.Arm.BASE else attempt.session.patched_build
            report = BootReport("measured", boot_id=str(uuid.uuid4()), build_id=kernel.build_id)
            values = Values("mm-basic", "1", "fault-4k", "time", "all", (3.0, 2.0), 1)
            record_boot(attempt=attempt, position=boot.position, report=report, measured=[values])
        end_attempt(attempt=attempt, agent=agent, outcome="done", reason="")
        (self.folder / "end" / key).write_text("over\n")


def measure(sessions: int = SESSIONS, seconds: float = SESSION_SECONDS) -> Run:
    """On the database that Django is set up on."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-dispatch-"))
    try:
        _prepare(folder, sessions)
        with controller([f"machine-{number:02}" for number in range(MACHINES)]) as jenkins:
            _point_at(jenkins, folder)
            jenkins.define_jobs()
            return _run(jenkins, Agents(folder, seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(folder: Path, sessions: int) -> None:
    for name in ("started", "end"):
        (folder / name).mkdir()
    (folder / "agent").write_text(_AGENT.format(folder=folder))
    (folder / "agent").chmod(0o755)
    build_case()
    build_metric()
    machines = [build_machine(f"machine-{number:02}") for number in range(MACHINES)]
    for number in range(sessions):
        build_session(machine=machines[number % MACHINES], boots_per_side=_BOOTS_PER_SIDE)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def _point_at(jenkins: Controller, folder: Path) -> None:
    (folder / "token").write_text(jenkins.token)
    settings.DISPATCHER = "jenkins"
    settings.JENKINS_URL, settings.JENKINS_USER = jenkins.url, jenkins.user
    settings.JENKINS_TOKEN_FILE, settings.JENKINS_AGENT = str(folder / "token"), str(folder / "agent")


def _run(jenkins: Controller, agents: Agents) -> Run:
    run = Run()
    began, next_round = time.monotonic(), 0.0
    while (
        Session.objects.exclude(state__in=Session.FINAL).exists()
        or Attempt.objects.filter(state__in=Attempt.ACTIVE).exists()
    ):
        if time.monotonic() - began > _LONGEST_SECONDS:
            break
        agents.step()
        if time.monotonic() >= next_round:
            _round(run)
            next_round = time.monotonic() + _BETWEEN_ROUNDS_SECONDS
        time.sleep(0.02)
    run.seconds = time.monotonic() - began
    run.arrivals = jenkins.request_times()
    run.ends = Counter(map(_end_of, Session.objects.all()))
    return run


def _round(run: Run) -> None:
    began = time.perf_counter()
    run_round()
    run.rounds.append(time.perf_counter() - began)
    row = JenkinsController.objects.get(url=settings.JENKINS_URL)
    run.reconciling.append(row.round_seconds or 0.0)
    run.requests.append(row.round_requests or 0)


def _end_of(session: Session) -> str:
    """Its state, and how many of each boot's measurements and of its attempts there are."""
    counts = {Measurement.objects.filter(boot=boot).count() for boot in session.boots.all()}
    return f"{session.state}, {'/'.join(map(str, sorted(counts)))} result each, {session.attempts.count()} attempt"


def told(run: Run) -> str:
    rows = [
        _row("requests of one reconciling, most", max(run.requests), MOST_REQUESTS),
        _row("round, seconds, median", median(run.rounds), MOST_ROUND_SECONDS),
        _row("round, seconds, worst", max(run.rounds), MOST_ROUND_SECONDS),
        _row("  its reconciling, median", median(run.reconciling), MOST_ROUND_SECONDS),
        _row("  its reconciling, worst", max(run.reconciling), MOST_ROUND_SECONDS),
        _row("requests a second, whole run", run.per_second, MOST_PER_SECOND),
        _row("requests a second, busiest ten seconds", run.busiest_ten_seconds, MOST_PER_SECOND),
    ]
    ends = "; ".join(f"{count} x {end}" for end, count in run.ends.most_common())
    title = f"{sum(run.ends.values())} sessions over {Machine.objects.count()} machines in {run.seconds:.0f} s, "
    title += f"{len(run.rounds)} rounds, {len(run.arrivals)} requests; ended: {ends}"
    return f"{title}\n" + table(["", "figure", "bar", "ratio to bar"], rows)


def holds(run: Run) -> bool:
    done = "done, 1 result each, 1 attempt"
    return (
        max(run.requests) <= MOST_REQUESTS
        and median(run.rounds) <= MOST_ROUND_SECONDS
        and run.per_second <= MOST_PER_SECOND
        and set(run.ends) == {done}
    )


def _row(name: str, figure: float, bar: float) -> Sequence[str]:
    return [name, f"{figure:.2f}", f"{bar:g}", f"{figure / bar:.2f}"]


def main(sessions: str = str(SESSIONS), seconds: str = str(SESSION_SECONDS)) -> None:
    os.environ.setdefault("TIDEMARK_DISPATCHER", "jenkins")
    # Each step of each session is a line of the service's log.
    logging.disable(logging.INFO)
    run = measure(int(sessions), float(seconds))
    print(told(run))
    sys.exit(0 if holds(run) else 1)
