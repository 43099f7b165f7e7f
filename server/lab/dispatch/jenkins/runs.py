"""What looks at the controller say about each run. Runs are matched by their key alone."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from server.lab.dispatch.jenkins.answers import NEWEST_BUILDS, BuildFacts, JobBuilds, QueueItem
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.dispatch.jenkins.values import Garbled, Missing, Rejected
from server.lab.models import Attempt, Fault
from server.lab.port import Observed, Sighting

# What one look at the controller says about each run. Runs are matched by their key alone.
#
# Ids of queue items and numbers of builds are given out again after a restart, so that they only say where to look.

# A trigger whose answer got lost may still be on its way: so many looks, so far apart, find it if it arrived.
_UNKNOWN_LOOKS = 2
_UNKNOWN_SECONDS = 15.0
# A run that the controller took in is missed this long before it counts as lost there; a restart takes 11 s.
_MISSED_SECONDS = 60.0
_SUCCESS = "SUCCESS"
# A build this much older than its attempt is another attempt's: a database that was put back to an older state gives
# keys out again. Clocks are compared at each look, so that this only has to cover how they move in between.
_OLDER = timedelta(minutes=10)
# Writing down each time that a run was seen would only cost writes.
_SEEN_EVERY = timedelta(seconds=30)


@dataclass
class Outside:
    """Queue items and builds by key. One key may have several builds: the later ones exit by themselves."""

    queue: dict[str, QueueItem] = field(default_factory=dict)
    builds: dict[str, list[BuildFacts]] = field(default_factory=dict)
    # How many builds of each job were looked at.
    counts: dict[str, int] = field(default_factory=dict)
    # Keys that may have older builds, for which there was no time to search: of these nothing is known.
    unsearched: set[str] = field(default_factory=set)
    # The controller's clock minus ours.
    skew_seconds: float = 0.0

    @classmethod
    def of(cls, queue: Iterable[QueueItem], jobs: Iterable[JobBuilds], skew_seconds: float | None = None) -> "Outside":
        outside = cls(queue={item.run_id: item for item in queue if item.run_id}, skew_seconds=skew_seconds or 0.0)
        for job in jobs:
            outside.counts[job.name] = len(job.builds)
            for build in job.builds:
                outside.add(build)
        return outside

    def add(self, build: BuildFacts) -> None:
        if build.run_id:
            self.builds.setdefault(build.run_id, []).append(build)

    def builds_of(self, run: JenkinsRun) -> list[BuildFacts]:
        """Builds with the run's key that can be its own."""
        earliest = run.attempt.created_at + timedelta(seconds=self.skew_seconds) - _OLDER
        builds = self.builds.get(run.attempt.key, [])
        builds = [build for build in builds if build.job == run.job]
        return [build for build in builds if build.started_at is None or build.started_at >= earliest]

    def item_of(self, run: JenkinsRun) -> QueueItem | None:
        """The item with the run's key; another service's keys are as ours, and its jobs are not."""
        item = self.queue.get(run.attempt.key)
        return item if item is not None and item.job == run.job else None

    def knows(self, run: JenkinsRun) -> bool:
        return self.item_of(run) is not None or bool(self.builds_of(run))


def sight(run: JenkinsRun, outside: Outside, now: datetime, *, boots_itself: bool) -> Sighting:
    """What became of the run; what is worth keeping is set on it, and not saved."""
    item = outside.item_of(run)
    builds = outside.builds_of(run)
    if item is None and not builds:
        if run.result:
            # It ended, and is no longer among the builds that are looked at.
            return _ended(run.result, run, boots_itself=boots_itself)
        if run.attempt.key in outside.unsearched:
            return Sighting(Observed.UNSURE)
        return _sight_missing(run, now)
    _see(run, now)
    building = [build for build in builds if build.building]
    if building:
        _keep(run, _ours(run, building) or building[-1])
        run.why = _others(run, building)
        return Sighting(Observed.ALIVE, run.why)
    if item is not None:
        run.queue_id, run.why, run.stuck = item.id, item.why, item.stuck
        return Sighting(Observed.WAITING, item.why)
    return _sight_ended(run, builds, boots_itself=boots_itself)


def _ours(run: JenkinsRun, builds: Sequence[BuildFacts]) -> BuildFacts | None:
    """The build in which the run was claimed, or which was first seen."""
    return next((build for build in builds if (build.job, build.number) == (run.job, run.number)), None)


def _is_taken(run: JenkinsRun) -> bool:
    """An agent has said in which build it came: its word counts, whatever else is there."""
    return bool(run.attempt.agent) or run.attempt.arrived_at is not None


def _keep(run: JenkinsRun, build: BuildFacts) -> None:
    if not _is_taken(run) or run.number is None:
        run.number = build.number
    run.queue_id = build.queue_id if build.queue_id is not None else run.queue_id
    run.node = (build.node or run.node)[:60]
    run.why, run.stuck = "", False


def _others(run: JenkinsRun, builds: Sequence[BuildFacts]) -> str:
    numbers = sorted(build.number for build in builds if build.number != run.number)
    return f"also started as build {', '.join(map(str, numbers))}, which will exit by itself" if numbers else ""


def _sight_ended(run: JenkinsRun, builds: Sequence[BuildFacts], *, boots_itself: bool) -> Sighting:
    build = _ours(run, builds)
    if build is None and _is_taken(run) and run.number is not None:
        return _ended(run.result or "no record of build", run, boots_itself=boots_itself)
    if build is None:
        # Nobody claimed any of them: one that did not end well counts, since what it started may live on.
        build = next((build for build in builds if build.result != _SUCCESS), builds[0])
    _keep(run, build)
    run.result = build.result[:20]
    return _ended(run.result, run, boots_itself=boots_itself)


def _ended(result: str, run: JenkinsRun, *, boots_itself: bool) -> Sighting:
    """SUCCESS says that the program has exited. All else is also said of programs that live on."""
    detail = f"{result or 'no result'} in build {run.number} of {run.job}"
    if result != _SUCCESS:
        return Sighting(Observed.LEFT, detail)
    return Sighting(Observed.HANDED_OVER if boots_itself else Observed.ENDED, detail)


def _see(run: JenkinsRun, now: datetime) -> None:
    if run.seen_at is None or not timedelta() <= now - run.seen_at < _SEEN_EVERY:
        run.seen_at = now
    run.absent_since, run.absent_looks = None, 0


def _sight_missing(run: JenkinsRun, now: datetime) -> Sighting:
    if not run.attempt.posts:
        return Sighting(Observed.ABSENT)
    run.absent_looks += 1
    if run.absent_since is None or run.absent_since > now:
        run.absent_since = now
    run.why, run.stuck = "", False
    seconds = (now - run.absent_since).total_seconds()
    detail = f"Jenkins has shown neither queue item nor build of it for {seconds:.0f} s"
    return Sighting(Observed.ABSENT if is_gone(run, now) else Observed.UNSURE, detail)


def is_gone(run: JenkinsRun, now: datetime) -> bool:
    """Whether a run that was triggered has been missing for so long that it may be triggered again, or given up."""
    if run.absent_since is None or run.result:
        return False
    seconds = (now - run.absent_since).total_seconds()
    if is_known(run):
        return seconds >= _MISSED_SECONDS
    return run.absent_looks >= _UNKNOWN_LOOKS and seconds >= _UNKNOWN_SECONDS


def is_known(run: JenkinsRun) -> bool:
    """Whether the controller is known to have taken the run in."""
    return run.queue_id is not None or run.seen_at is not None


# What the console says of builds that failed before an agent had claimed the attempt: never is it the work's fault.
#
# Nothing of anybody's patch has run by then: the console holds words of Jenkins, of the job's script and of our
# agent. They are for staff; reasons are public, and say in words of ours whose fault it was.

log = structlog.get_logger(__name__)

# Requests of one round for this; with the three of a look, and one for a job's definition, a round needs six at most.
MOST_SEARCHES = 2


def search(client: JenkinsClient, runs: Iterable[JenkinsRun], outside: Outside) -> None:
    """Add builds of runs that the look did not show to `outside`."""
    missing = [run for run in runs if _may_be_older(run, outside)]
    # Each search in vain is counted, so that all have their turn.
    missing.sort(key=lambda run: (run.absent_looks, run.pk))
    left = MOST_SEARCHES
    for run in missing:
        if left > 0:
            left -= _try_to_find(client, run, outside)
        else:
            outside.unsearched.add(run.attempt.key)


def _may_be_older(run: JenkinsRun, outside: Outside) -> bool:
    """A job with fewer builds than a look shows has no older ones."""
    if not run.attempt.posts or run.result or outside.knows(run):
        return False
    return outside.counts.get(run.job, 0) >= NEWEST_BUILDS


def _try_to_find(client: JenkinsClient, run: JenkinsRun, outside: Outside) -> int:
    """Returns how many requests it took. An odd answer to one search leaves that run unsearched, and no other."""
    before = client.requests
    try:
        _find(client, run, outside)
    except (Garbled, Missing, Rejected) as error:
        log.warning("jenkins_search_failed", key=run.attempt.key, error=error.message)
        outside.unsearched.add(run.attempt.key)
    return client.requests - before


def _find(client: JenkinsClient, run: JenkinsRun, outside: Outside) -> None:
    number = run.number
    if number is None:
        found = client.find_builds(run.job, run.attempt.key)
        number = found[0][0] if found else None
    if number is not None:
        try:
            build = client.build(run.job, number)
        except Missing:
            return
        # The number may be that of another run by now.
        if build.run_id == run.attempt.key:
            outside.add(build)


_SEEN = ("queue_id", "why", "stuck", "result", "seen_at", "absent_since", "absent_looks", "console")
# An agent that claims or arrives says these itself, and knows better.
_PLACE = ("number", "node")

Known = Mapping[str, Any]


def known(run: JenkinsRun) -> Known:
    """What is stored of the run by now, to be compared after the look."""
    return {"fault": run.attempt.fault, **{name: getattr(run, name) for name in (*_SEEN, *_PLACE)}}


def keep(runs: Iterable[JenkinsRun], before: Mapping[int, Known]) -> None:
    """Store what changed, and nothing else; as many statements as there are kinds of change."""
    changed: dict[tuple[str, ...], list[JenkinsRun]] = defaultdict(list)
    for run in runs:
        old = before[run.pk]
        names = tuple(name for name in _SEEN if getattr(run, name) != old[name])
        if names:
            changed[names].append(run)
        if run.attempt.fault != old["fault"]:
            Attempt.objects.filter(pk=run.attempt_id).update(fault=run.attempt.fault)
        if any(getattr(run, name) != old[name] for name in _PLACE):
            JenkinsRun.objects.filter(
                pk=run.pk,
                number=old["number"],
                attempt__agent=run.attempt.agent,
                attempt__arrived_at=run.attempt.arrived_at,
            ).update(number=run.number, node=run.node)
    for names, group in changed.items():
        JenkinsRun.objects.bulk_update(group, names)


# Requests of one round for this. What there is no time for is waited for, so that nothing is concluded without it.
MOST_CONSOLES = 2
_FAILURE = "FAILURE"
_KEPT_CHARACTERS = 4000
# The event with which our agent ends when the service does not answer it (tidemark_agent/log.py).
_GIVEN_UP = "server-given-up"


def explain(client: JenkinsClient, runs: Mapping[str, JenkinsRun], sightings: dict[str, Sighting]) -> None:
    """Read the consoles of builds that failed unclaimed: fault and console are set on the runs, and not saved."""
    left = MOST_CONSOLES
    for key, run in runs.items():
        if sightings[key].observed is not Observed.LEFT or not _failed_unclaimed(run):
            continue
        if not run.attempt.fault:
            if not left:
                sightings[key] = Sighting(Observed.UNSURE, "its console is still to be read")
                continue
            left -= 1
            _read(client, run)
        sightings[key] = Sighting(Observed.LEFT, f"{sightings[key].detail}{_words(run)}")


def _failed_unclaimed(run: JenkinsRun) -> bool:
    attempt = run.attempt
    return run.result == _FAILURE and run.number is not None and not attempt.agent and attempt.arrived_at is None


def _read(client: JenkinsClient, run: JenkinsRun) -> None:
    try:
        text = client.log(run.job, run.number or 0).text.strip()
    except (Garbled, Missing, Rejected) as error:
        # Its fault stays unknown: nothing is concluded from it.
        log.warning("jenkins_console_unread", key=run.attempt.key, error=error.message)
        run.attempt.fault = Fault.UNKNOWN
        return
    run.console = text[-_KEPT_CHARACTERS:]
    run.attempt.fault = Fault.SERVICE if _GIVEN_UP in _events(text.splitlines()) else Fault.HOST


def _events(lines: Iterable[str]) -> set[str]:
    """The events of our agent's log lines."""
    found = set()
    for line in lines:
        try:
            value = json.loads(line) if line.startswith("{") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("event"), str):
            found.add(value["event"])
    return found


def _words(run: JenkinsRun) -> str:
    return f"; {run.attempt.get_fault_display()}{'; its console is for staff' if run.console else ''}"
