"""The port's Jenkins adapter: a run is a build of a job with one parameter, the attempt's key; and what pages show of
the controller.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.addresses import without_credentials
from server.core.errors import DomainError
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.answers import BuildFacts, QueueItem, QueueStage
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.controller import (
    check_alarm,
    check_refused,
    hold_nodes,
    note_answer,
    note_nodes,
    note_round,
    noting,
    without_unfit,
)
from server.lab.dispatch.jenkins.jobs import job_name, own_mark, wanted
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob, JenkinsNode, JenkinsRun
from server.lab.dispatch.jenkins.runs import Outside, explain, is_gone, is_known, keep, known, search, sight
from server.lab.dispatch.jenkins.values import Forbidden, JenkinsError, Missing, Rejected
from server.lab.hosts.state import Health, change_health
from server.lab.models import Attempt, Fault
from server.lab.port import (
    Alarm,
    ControllerStatus,
    Dispatcher,
    DispatchError,
    Node,
    Observed,
    Origin,
    Run,
    Sighting,
    Sightings,
    UnfitJob,
    Work,
)

log = structlog.get_logger(__name__)

# Triggers of one run whose effect nobody ever saw.
MOST_POSTS = 3


def submit_run(client: JenkinsClient, work: Work) -> bool:
    """Trigger the run's job unless the controller knows it; whether that was done. Raises DispatchError."""
    run = _run_to_trigger(work)
    if run is None:
        return False
    with noting():
        problem = jobs.trouble_of(client, run.job)
    if problem:
        raise DispatchError("jenkins-job", f"nothing is triggered in {run.job}: {problem}")
    posts = _posts(run)
    counted = _count_post(run, posts)
    if counted:
        _trigger(client, run, posts)
    return counted


def _posts(run: JenkinsRun) -> int:
    return run.attempt.posts or 0


def _count_post(run: JenkinsRun, posts: int) -> bool:
    """Committed before the request leaves; of two dispatchers one wins."""
    with transaction.atomic():
        counted = Attempt.objects.filter(pk=run.attempt_id, posts=posts).update(posts=posts + 1)
        counted = counted and JenkinsRun.objects.filter(pk=run.pk, result="").update(
            posted_at=clock.now(), queue_id=None, absent_since=None, absent_looks=0
        )
        if not counted:
            transaction.set_rollback(True)
    return bool(counted)


def _run_to_trigger(work: Work) -> JenkinsRun | None:
    """The run, committed, if it may be triggered; None if it was and is known to the controller."""
    Attempt.objects.filter(key=work.key, posts=None).update(posts=0)
    attempt = Attempt.objects.get(key=work.key)
    run, _ = JenkinsRun.objects.select_related("attempt").get_or_create(
        attempt=attempt, defaults={"job": job_name(work.kind, work.subject), "node": work.host[:60]}
    )
    if _posts(run) == 0:
        return run
    if not is_gone(run, clock.now()):
        if is_known(run):
            return None
        raise DispatchError("jenkins-unsure", f"not known yet whether Jenkins took {work.key} in", permanent=False)
    if _posts(run) >= MOST_POSTS:
        raise DispatchError("jenkins-lost", f"triggered {_posts(run)} times, and never seen in {run.job}")
    return run


def _trigger(client: JenkinsClient, run: JenkinsRun, posts: int) -> None:
    try:
        with noting():
            triggered = client.trigger(run.job, run.attempt.key)
    except JenkinsError as error:
        if not error.maybe_done:
            Attempt.objects.filter(pk=run.attempt_id, posts=posts + 1).update(posts=posts)
        if isinstance(error, Missing | Forbidden | Rejected):
            with suppress(JenkinsError), noting():
                jobs.check_refused(client, run.job, error)
        raise
    JenkinsRun.objects.filter(pk=run.pk).update(queue_id=triggered.queue_id, controller_session=client.head.session)
    log.info("run_triggered", key=run.attempt.key, job=run.job, queue_id=triggered.queue_id)


# A build ends within a second after `stop`. One that goes on has an agent that hears nothing.
_STOP_PATIENCE = timedelta(seconds=60)


def stop_run(client: JenkinsClient, run: JenkinsRun, outside: Outside, sighting: Sighting, now: datetime) -> bool:
    """One step down the ladder; whether nothing of the run is with the controller any more.

    The answers to these requests prove nothing: the next look does.
    """
    item = outside.item_of(run)
    if item is not None:
        _cancel_item(client, run, item, now)
        return False
    building = [build for build in outside.builds_of(run) if build.building]
    if building:
        return _stop_builds(client, run, building, now)
    # What was in the queue, is not there since we canceled it, and did not become a build, is over at once.
    return run.cancel_asked_at is not None or sighting.observed is not Observed.UNSURE


def _cancel_item(client: JenkinsClient, run: JenkinsRun, item: QueueItem, now: datetime) -> None:
    """Ids are given out again by a controller that was killed: the item is read once more right before."""
    try:
        fresh = client.queue_item(item.id)
    except Missing:
        return
    if fresh.run_id != run.attempt.key or fresh.stage is QueueStage.LEFT:
        return
    client.cancel_item(item.id)
    _note(run, cancel_asked_at=now)


def _stop_builds(client: JenkinsClient, run: JenkinsRun, building: list[BuildFacts], now: datetime) -> bool:
    if run.stop_asked_at is None:
        _ask_to_stop(client, run, building, now)
        return False
    if now < run.stop_asked_at:
        # Our clock was put back: its patience begins anew.
        _note(run, stop_asked_at=now)
    if now - run.stop_asked_at < _STOP_PATIENCE:
        return False
    if run.disconnect_asked_at is None:
        _note(run, disconnect_asked_at=now)
        _quarantine(run)
        for node in sorted({build.node for build in building if build.node}):
            client.disconnect(node, f"{own_mark()}{run.attempt.key} does not stop")
    return True


def _ask_to_stop(client: JenkinsClient, run: JenkinsRun, building: list[BuildFacts], now: datetime) -> None:
    """A build that we are not allowed to stop must not keep us from cutting its agent off: else it would never end."""
    for build in building:
        try:
            client.stop(build.job, build.number)
        except Missing:
            # Deleted since the look.
            continue
        except (Forbidden, Rejected):
            _note(run, stop_asked_at=now)
            raise
    _note(run, stop_asked_at=now)


def _quarantine(run: JenkinsRun) -> None:
    """Its program may live on, unseen: nothing else is given to the host until it has proved itself."""
    host = run.attempt.machine or run.attempt.builder
    log.warning("agent_cut_off", key=run.attempt.key, host=str(host))
    if host is not None:
        change_health(host, Health.QUARANTINED, f"it did not let go of {run.attempt.key} when it was stopped")


def _note(run: JenkinsRun, **asked: datetime) -> None:
    JenkinsRun.objects.filter(pk=run.pk).update(**asked)
    for name, value in asked.items():
        setattr(run, name, value)


# With the controller's limit of requests in a second, a round that only places is over within half a second; a look
# that takes long takes nothing from either.
_STEPS_SECONDS = 0.2
# A look serves the steps of its own round, and nothing later.
_LOOK_SERVES_SECONDS = 3.0


class JenkinsDispatcher(Dispatcher):
    """For one thread; any number of them, in any number of processes, do no harm to each other."""

    name = "jenkins"
    about = "jenkins"

    def __init__(self, client: JenkinsClient | None = None) -> None:
        self._client = client
        self._outside = Outside()
        self._looked_at = 0.0
        # Runs that were moved since the look, which it shows as they were.
        self._moved: set[str] = set()
        self._round_began = 0.0
        self._round_requests = 0

    @property
    def steps_seconds(self) -> float:
        return _STEPS_SECONDS

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

    def look(self, works: Sequence[Work]) -> Sightings:
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
        return Sightings(sightings, without_unfit(hosts))

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
        if run is None or _posts(run) == 0:
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

    def is_held(self, work: Work) -> bool:
        """Whether its node is marked offline: for this attempt, or by a person, whose mark is as good.

        What no controller was asked to start has no node.
        """
        if not JenkinsRun.objects.filter(attempt__key=work.key).exists():
            return True
        node = JenkinsNode.objects.filter(name=work.host, temporarily_offline=True).first()
        return node is not None and node.held_for in {"", work.key}

    # --- agents that come --------------------------------------------------------------

    def check_origin(self, work: Work, origin: Origin) -> None:
        """Raises `job-edited`. The first act of a build is to say which script it runs.

        The dispatcher's user may not read a job's configuration, and a job that was edited by hand shows nothing of it.
        Who has his script tell our hash is not found out so; `jenkins_apply --check`, with an admin's account, finds
        that as well. What no controller was asked to start has no script.
        """
        asked = JenkinsRun.objects.select_related("attempt").filter(attempt__posts__gt=0)
        run = asked.filter(attempt__key=work.key).first()
        if run is None:
            return
        definition = wanted().jobs.get(run.job)
        if definition is not None and origin.script == definition.script:
            jobs.note_ours(run.job)
            return
        Attempt.objects.filter(pk=run.attempt_id).update(fault=Fault.JOB)
        jobs.note_edited(run.job)
        told = f"script {origin.script[:12]}" if origin.script else "a script that does not say which it is"
        log.warning("job_edited", key=work.key, trace=run.attempt.trace, job=run.job, script=origin.script)
        raise DomainError("job-edited", f"{run.job} runs {told}, not the one that the service defined; it gets no work")

    def record_arrival(self, work: Work, origin: Origin, *, again: bool) -> None:
        """Of two builds of one key the first one wins."""
        run = JenkinsRun.objects.select_for_update(of=("self",)).filter(attempt__key=work.key).first()
        if run is None:
            return
        if again and (origin.job or run.job, origin.number) != (run.job, run.number):
            raise DomainError("superseded", f"{work.key} arrived in build {run.number}, not in {origin.number}")
        if origin.job == run.job:
            run.number, run.node, run.boot_id = origin.number, origin.node or run.node, origin.boot_id
            run.save(update_fields=["number", "node", "boot_id"])

    # --- for pages ---------------------------------------------------------------------

    def runs(self, attempts: Iterable[int], *, consoles: bool) -> dict[int, Run]:
        return runs(attempts, consoles=consoles)

    def node(self, name: str) -> Node | None:
        return node(name)

    def controller(self) -> ControllerStatus | None:
        return controller_status()

    def alarms(self, now: datetime) -> tuple[Alarm, ...]:
        return alarms(now)


def _sight(run: JenkinsRun | None, work: Work, outside: Outside, now: datetime) -> Sighting:
    """Without a row nothing was ever triggered."""
    if run is None:
        return Sighting(Observed.ABSENT)
    return sight(run, outside, now, boots_itself=work.boots_itself)


def _runs(works: Iterable[Work]) -> list[JenkinsRun]:
    keys = [work.key for work in works]
    related = ("attempt__machine", "attempt__builder")
    return list(JenkinsRun.objects.filter(attempt__key__in=keys).select_related(*related))


# Rounds follow each other within seconds; silence this long means that nobody makes any.
_SILENT = timedelta(minutes=5)
# Nothing is decided by the controller's clock, but people compare its logs with ours.
_SKEWED_SECONDS = 60.0
_NODES = 200
_JOBS = 50


def alarms(now: datetime) -> tuple[Alarm, ...]:
    """One query."""
    controller = _controller()
    if controller is None:
        advice = "Look at TIDEMARK_JENKINS_URL and whether a worker is running."
        return (Alarm("The Jenkins controller was never asked.", None, advice),)
    found = []
    if controller.alarm:
        advice = "Only a person can mend this; nothing but one request a minute is sent until then."
        found.append(Alarm(controller.alarm, controller.alarm_since, advice))
    if controller.unreachable_since:
        what = "The Jenkins controller does not answer."
        advice = "Nothing new is handed out; what runs goes on by itself. Look whether Jenkins runs."
        found.append(Alarm(what, controller.unreachable_since, advice, controller.trouble))
    if controller.round_at is None or now - controller.round_at > _SILENT:
        advice = "Rounds are made by the worker of the queue lab, woken by beat: look whether both run."
        found.append(Alarm("No round of the dispatcher was finished lately.", controller.round_at, advice))
    skew = controller.clock_skew_seconds
    if skew is not None and abs(skew) > _SKEWED_SECONDS:
        what = f"The controller's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours."
        found.append(Alarm(what, None, "Nothing is decided by it; set the clock there to read its logs beside ours."))
    return tuple(found)


def controller_status() -> ControllerStatus | None:
    """Three queries; None before the controller was asked for the first time."""
    row = _controller()
    if row is None:
        return None
    jobs = JenkinsJob.objects.exclude(problem="", edited_at=None)[:_JOBS]
    return ControllerStatus(
        url=without_credentials(row.url),
        version=row.version,
        answered_at=row.answered_at,
        round_at=row.round_at,
        round_seconds=row.round_seconds,
        round_requests=row.round_requests,
        jobs=tuple(UnfitJob(job.name, job.trouble, job.checked_at or job.edited_at) for job in jobs),
        nodes=tuple(_node(node) for node in JenkinsNode.objects.all()[:_NODES]),
    )


def _controller() -> JenkinsController | None:
    return JenkinsController.objects.filter(url=settings.JENKINS_URL).first()


def node(name: str) -> Node | None:
    row = JenkinsNode.objects.filter(name=name).first()
    return _node(row) if row else None


def _node(row: JenkinsNode) -> Node:
    return Node(
        name=row.name,
        online=row.online,
        connected=row.connected,
        marked_offline=row.temporarily_offline,
        offline_reason=row.offline_reason,
        held_for=row.held_for,
        busy_with=row.busy_with,
        seen_at=row.seen_at,
    )


def runs(attempts: Iterable[int], *, consoles: bool) -> dict[int, Run]:
    """One query."""
    rows = JenkinsRun.objects.filter(attempt__in=list(attempts))
    return {row.attempt_id: _run(row, consoles=consoles) for row in (rows if consoles else rows.defer("console"))}


def _run(row: JenkinsRun, *, consoles: bool) -> Run:
    steps = (
        ("taking it out of the queue", row.cancel_asked_at),
        ("stopping its build", row.stop_asked_at),
        ("disconnecting its node", row.disconnect_asked_at),
    )
    return Run(
        job=row.job,
        number=row.number,
        node=row.node,
        why=row.why,
        stuck=row.stuck,
        result=row.result,
        console=row.console if consoles else "",
        posted_at=row.posted_at,
        seen_at=row.seen_at,
        absent_since=row.absent_since,
        asked=tuple((name, at) for name, at in steps if at is not None),
    )
