"""What one look at the controller says about each run. Runs are matched by their key alone.

Ids of queue items and numbers of builds are given out again after a restart, so that they only say where to look.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from server.lab.dispatch.base import Observed, Sighting
from server.lab.dispatch.jenkins.answers import BuildFacts, JobBuilds, QueueItem
from server.lab.models import JenkinsRun

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
    if run.posts == 0:
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
