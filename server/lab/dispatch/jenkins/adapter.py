"""The port's Jenkins adapter: a run is a build of a job with one parameter, the attempt's key."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from server.core import clock
from server.lab.dispatch.base import Look, Observed, Sighting, Work
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.alarms import check_alarm, check_refused, note_answer, note_round, noting
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.consoles import explain
from server.lab.dispatch.jenkins.keeping import keep, known
from server.lab.dispatch.jenkins.ladder import stop_run
from server.lab.dispatch.jenkins.matching import Outside, sight
from server.lab.dispatch.jenkins.nodes import hold_nodes, note_nodes, without_unfit
from server.lab.dispatch.jenkins.searching import search
from server.lab.dispatch.jenkins.triggering import submit_run
from server.lab.models import JenkinsRun

# A look serves the steps of its own round, and nothing later.
_LOOK_SERVES_SECONDS = 3.0


class JenkinsDispatcher:
    """For one thread; any number of them, in any number of processes, do no harm to each other."""

    name = "jenkins"

    def __init__(self, client: JenkinsClient | None = None) -> None:
        self._client = client
        self._outside = Outside()
        self._looked_at = 0.0
        # Runs that were moved since the look, which it shows as they were.
        self._moved: set[str] = set()
        self._round_began = 0.0
        self._round_requests = 0

    @property
    def client(self) -> JenkinsClient:
        if self._client is None:
            self._client = JenkinsClient.from_settings()
        return self._client

    def submit(self, work: Work) -> None:
        """Trigger the job, unless that was done and its effect is not known to be lost."""
        check_refused()
        if submit_run(self.client, work):
            self._moved.add(work.key)

    # --- looking --------------------------------------------------------------------

    def look(self, works: Sequence[Work]) -> Look:
        """Three requests, whatever the number of works, and at most five more for what they do not show."""
        check_alarm()
        with noting(looking=True):
            self._round_began, self._round_requests = time.monotonic(), self.client.requests
            outside = self._read()
            nodes = self.client.nodes()
        runs = {run.attempt.key: run for run in _runs(works)}
        with noting():
            search(self.client, runs.values(), outside)
        note_answer(self.client.head)
        now = clock.now()
        before = {run.pk: known(run) for run in runs.values()}
        sightings = {work.key: _sight(runs.get(work.key), work, outside, now) for work in works}
        with noting():
            explain(self.client, runs, sightings)
        keep(runs.values(), before)
        jobs.check_oldest(self.client, now)
        hosts = note_nodes(nodes)
        return Look(sightings, without_unfit(hosts))

    def _read(self) -> Outside:
        """The queue first: what leaves it for a build between the two requests is seen in the second."""
        queue = self.client.queue()
        self._outside = Outside.of(queue, self.client.jobs(), self.client.head.skew_seconds)
        self._looked_at = time.monotonic()
        self._moved.clear()
        return self._outside

    # --- stopping, holding --------------------------------------------------------------

    def cancel(self, work: Work) -> bool:
        run = next(iter(_runs([work])), None)
        if run is None or run.posts == 0:
            return True
        check_refused()
        with noting():
            outside = self._outside
            if work.key in self._moved or time.monotonic() - self._looked_at > _LOOK_SERVES_SECONDS:
                outside = self._read()
                search(self.client, [run], outside)
            now, before = clock.now(), {run.pk: known(run)}
            sighting = sight(run, outside, now, boots_itself=work.boots_itself)
            keep([run], before)
            self._moved.add(work.key)
            return stop_run(self.client, run, outside, sighting, now)

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """Mark nodes offline. It is the last step of a round's reconciling, which is noted here."""
        try:
            check_refused()
            with noting():
                return hold_nodes(self.client, hosts)
        finally:
            if self._round_began:
                note_round(time.monotonic() - self._round_began, self.client.requests - self._round_requests)
                self._round_began = 0.0


def _sight(run: JenkinsRun | None, work: Work, outside: Outside, now: datetime) -> Sighting:
    """Without a row nothing was ever triggered."""
    if run is None:
        return Sighting(Observed.ABSENT)
    return sight(run, outside, now, boots_itself=work.boots_itself)


def _runs(works: Iterable[Work]) -> list[JenkinsRun]:
    keys = [work.key for work in works]
    related = ("attempt__machine", "attempt__builder")
    return list(JenkinsRun.objects.filter(attempt__key__in=keys).select_related(*related))
