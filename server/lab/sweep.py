"""What the lab does by itself: what hosts and work need after anything was lost, whoever was killed where."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from server.builds.blame import blame
from server.builds.models import Build, BuildState
from server.builds.wanted import cancel_unwanted, is_present, wake_build, want_build
from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.lab.attempts.ends import cancel_attempt, end_session, was_done
from server.lab.attempts.life import UNCLAIMED
from server.lab.hosts.health import awaited_kernels, open_health_sessions, plan_health_session
from server.lab.hosts.state import HELD, Health, State, change_state, mend_states, out_of_service, quarantined_by_person
from server.lab.hosts.trouble import end_power_cycle, fetch_back, give_up_machine, judge_hosts
from server.lab.models import (
    Attempt,
    AttemptState,
    BootState,
    Machine,
    PowerCycle,
    PowerCycleState,
    Session,
    SessionState,
    Trial,
    TrialState,
)
from server.lab.trials.kernels import awaited_by_trials, trees_of_canceled
from server.lab.trials.life import cancel_session, cancel_trial
from server.lab.trials.question import PATIENCE_FOR_ALL, PATIENCE_FOR_ANY
from server.sources.models import SeriesState

_GONE = (BuildState.EXPIRED, BuildState.CANCELED)


def tend_kernels() -> int:
    """Have missing kernels of waiting sessions built again, or end the sessions; returns how many were touched.

    A session whose kernel cannot come out as the same one again goes on with new kernels if nothing of it is measured
    yet. Otherwise its boots would be of two kernels, and it fails. Safe to repeat.
    """
    arms = ("base_build", "patched_build")
    waiting = Session.objects.filter(state=SessionState.PLANNED)
    missing = Q(base_build__state__in=[*_GONE, BuildState.FAILED])
    missing |= Q(patched_build__state__in=[*_GONE, BuildState.FAILED])
    related = [f"{arm}__{name}" for arm in arms for name in ("revision", "config", "toolchain")]
    return sum(_tend(session) for session in waiting.filter(missing).select_related(*related, "machine"))


def _tend(session: Session) -> bool:
    builds = [session.base_build, session.patched_build]
    judgement = blame(*builds)
    if judgement.sentence:
        return end_session(session, SessionState.FAILED, Because.DOES_NOT_BUILD(judgement.sentence))
    gone = [build for build in builds if build.state in _GONE]
    lost = [build for build in gone if not is_present(build)]
    if lost:
        return _replace(session, lost[0])
    for build in gone:
        # Both arms of a health session are one row; a step that another process has made is as good.
        build.refresh_from_db()
        if build.state in _GONE:
            wake_build(build, session.trace)
    return bool(gone)


def _replace(session: Session, lost: Build) -> bool:
    why = Because.KERNEL_MISSING(f"build {lost.pk} cannot be made again as it was: {lost.reason}")
    if session.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).exists():
        return end_session(session, SessionState.FAILED, why)
    base, patched = (
        want_build(revision=old.revision, config=old.config, toolchain=old.toolchain, trace=session.trace)
        for old in (session.base_build, session.patched_build)
    )
    told = Because.MOVED(f"with builds {base.pk} and {patched.pk}: {why}")
    return session.note(told, base_build=base, patched_build=patched)


_CANCELED = (
    Q(build__state=BuildState.CANCELED)
    | Q(session__state=SessionState.CANCELED)
    | Q(power_cycle__state=PowerCycleState.CANCELED)
)
_REASON = Because.REPLACED("a newer version of the series arrived")
# Work that has its result already, out of the spool of an earlier attempt.
_OVER = Q(build__state__in=[BuildState.BUILT, BuildState.FAILED, BuildState.EXPIRED]) | Q(
    session__state__in=[SessionState.DONE, SessionState.FAILED]
)


def cancel_superseded() -> int:
    """Cancel what waits or runs for series that a newer version replaced, or for trials that were canceled.

    Returns how many builds and sessions. What is with an agent is stopped by the rounds; its session ends when that is
    done. Builds that others want as well stay.
    """
    ended = _cancel_sessions()
    superseded = Trial.objects.filter(series__state=SeriesState.SUPERSEDED)
    for trial in superseded.filter(state__in=[TrialState.WANTED, TrialState.MEASURING]):
        cancel_trial(trial, _REASON)
    keep = {*awaited_kernels(), *awaited_by_trials()}
    ended += cancel_unwanted(_REASON, keep=keep)
    canceled = Because.NOT_WANTED("the trial that wanted it was canceled")
    ended += cancel_unwanted(canceled, keep=keep, trees=trees_of_canceled())
    stop_needless()
    return ended


def _cancel_sessions() -> int:
    """Also those of canceled trials whose agent was lost while it was to be stopped: they were planned again."""
    sessions = Session.objects.filter(
        Q(series__state=SeriesState.SUPERSEDED)
        | Q(trial__series__state=SeriesState.SUPERSEDED)
        | Q(trial__state=TrialState.CANCELED),
        state__in=[SessionState.PLANNED, SessionState.DISPATCHED, SessionState.RUNNING],
    )
    return sum(cancel_session(session, _why(session)) for session in sessions.select_related("trial"))


def _why(session: Session) -> Reason:
    trial = session.trial
    return trial.said if trial is not None and trial.state == TrialState.CANCELED else _REASON


def stop_needless() -> None:
    """Have attempts stopped whose work was canceled, or got its result before an agent came for it."""
    running = Attempt.objects.filter(state=AttemptState.RUNNING).filter(_CANCELED)
    unclaimed = Attempt.objects.filter(state__in=UNCLAIMED).filter(_CANCELED | _OVER)
    for attempt in (running | unclaimed).select_related("build", "session", "power_cycle"):
        work = attempt.build or attempt.session or attempt.power_cycle
        assert work is not None
        cancel_attempt(attempt, work.said or Because.WORK_OVER(f"its work is {work.state}"))


# A machine to be checked keeps its sessions: they go on when it passes, and are stranded when it does not.
_KEEPS = [Health.GOOD, Health.UNKNOWN]


def rescue_stranded() -> tuple[int, int]:
    """Move or end the waiting sessions of machines that take none; returns how many of each.

    The results of a series' other machines must not wait for one that may be away for weeks.
    """
    moved = ended = 0
    waiting = Session.objects.filter(state=SessionState.PLANNED).exclude(
        machine__enabled=True, machine__health__in=_KEEPS, needs=[]
    )
    for session in waiting.select_related("machine", "trial"):
        trouble = _trouble(session)
        if not trouble:
            continue
        if _may_move(session) and _move(session, trouble):
            moved += 1
        elif _is_patient(session):
            continue
        else:
            canceled = session.purpose == Session.Purpose.HEALTH
            ended += end_session(
                session, SessionState.CANCELED if canceled else SessionState.FAILED, Because.HOST_TROUBLE(trouble)
            )
    return moved, ended


def _trouble(session: Session) -> str:
    machine = session.machine
    checked = session.purpose == Session.Purpose.HEALTH and machine.health == Health.QUARANTINED
    keeps = machine.enabled and (machine.health in _KEEPS or checked)
    if not keeps and (trouble := out_of_service(machine, session.trial)):
        return trouble
    lacking = sorted(set(session.needs) - set(machine.capabilities))
    return f"machine {machine.name} has no {', '.join(lacking)}" if lacking else ""


def _may_move(session: Session) -> bool:
    """Whether any machine like its own would do: its trial names none, and it checks none."""
    return session.trial is not None and not session.trial.machines.exists()


def _is_patient(session: Session) -> bool:
    """A trial of named machines waits for them a while, as it does before its sessions are planned.

    Not where an idle machine was to be measured, and not for more boots of what has a result already.
    """
    trial = session.trial
    if trial is None or trial.purpose == Trial.Purpose.NOISE or not trial.machines.exists() or was_done(session):
        return False
    patience = PATIENCE_FOR_ALL if trial.sessions.exclude(pk=session.pk).exists() else PATIENCE_FOR_ANY
    return clock.now() - max(session.state_since, session.machine.health_since) < patience


def _move(session: Session, trouble: str) -> bool:
    """Give a session of which nothing is measured to a machine that measures the same."""
    if session.boots.exclude(state=BootState.PLANNED).exists():
        return False
    sister = _sister(session)
    if sister is None:
        return False
    try:
        with transaction.atomic():
            told = Because.MOVED(f"moved from {session.machine.name} to {sister.name}: {trouble}")
            moved = session.note(told, machine=sister)
    except IntegrityError:
        # Another session of the trial was moved there first: that one measures it.
        return False
    enqueue("lab.dispatch")
    return moved


def _sister(session: Session) -> Machine | None:
    own = session.machine
    alike = Machine.objects.filter(
        enabled=True,
        health=Health.GOOD,
        uarch=own.uarch_id,
        config=own.config_id,
        toolchain=own.toolchain_id,
        virtual=own.virtual,
        clock=own.clock,
        cases=own.cases,
        capabilities__contains=sorted({*session.needs}),
    )
    others = Session.objects.filter(trial=session.trial_id)
    return alike.exclude(pk__in=others.values("machine")).exclude(pk=own.pk).order_by("name").first()


log = structlog.get_logger(__name__)

# A server's firmware alone takes minutes, its file system check some more, and its hello comes every 5 minutes.
RETURN_WITHIN = timedelta(minutes=20)
# The same, from when the control host said that the power is back.
BACK_AFTER_POWER_CYCLE = timedelta(minutes=15)
# Nobody at the control host took the order: it is down, or has no job.
POWER_CYCLE_WITHIN = timedelta(hours=2)


def sweep() -> None:
    """Bring states in line, fetch back or give up who does not come back, check who waits for it, rescue sessions.

    Each step stands for itself: trouble of one must not keep the others from their work. Safe to repeat and to kill.
    """
    steps: tuple[Callable[[], object], ...] = (
        mend_states,
        _fetch_late_machines,
        _judge_power_cycles,
        judge_hosts,
        plan_checks,
        rescue_stranded,
    )
    for step in steps:
        try:
            step()
        except DomainError as error:
            log.warning("sweep_step_failed", step=step.__name__, code=error.code, error=error.message)


def _fetch_late_machines() -> None:
    late = Machine.objects.filter(state=State.RETURNING, state_since__lt=clock.now() - RETURN_WITHIN)
    for machine in late:
        minutes = RETURN_WITHIN.total_seconds() / 60
        fetch_back(machine, f"not back {minutes:.0f} minutes after {machine.state_reason or 'its session'}")


def _judge_power_cycles() -> None:
    now = clock.now()
    stuck = PowerCycle.objects.filter(state__in=PowerCycle.OPEN, created_at__lt=now - POWER_CYCLE_WITHIN)
    for cycle in stuck.select_related("machine").exclude(attempts__state="running"):
        hours = POWER_CYCLE_WITHIN.total_seconds() / 3600
        why = f"not done within {hours:.0f} hours; {cycle.reason}".strip("; ")
        end_power_cycle(cycle, False, why)
    cycling = Machine.objects.filter(state=State.POWER_CYCLING)
    newest = PowerCycle.objects.filter(machine=OuterRef("pk")).order_by("-id").values("pk")[:1]
    cycles = PowerCycle.objects.filter(pk__in=cycling.order_by().annotate(newest=Subquery(newest)).values("newest"))
    last_of = {cycle.machine_id: cycle for cycle in cycles}
    for machine in cycling:
        last = last_of.get(machine.pk)
        if last is None or last.state == PowerCycleState.CANCELED:
            change_state(machine, State.OFFLINE, "its power cycle was called off")
        elif last.state == PowerCycleState.FAILED:
            give_up_machine(machine, f"could not be switched off and on: {last.reason}")
        elif last.state == PowerCycleState.DONE and now - last.state_since > BACK_AFTER_POWER_CYCLE:
            minutes = BACK_AFTER_POWER_CYCLE.total_seconds() / 60
            give_up_machine(machine, f"not back {minutes:.0f} minutes after it was switched off and on")


# --- checks -----------------------------------------------------------------------------


def plan_checks() -> int:
    """Plan the health sessions that are due; returns how many."""
    checked = set(open_health_sessions().values_list("machine", flat=True))
    planned = 0
    for machine in _due_for_check().select_related("config", "toolchain", "health_build"):
        if machine.pk not in checked:
            planned += plan_health_session(machine, machine.health_reason) is not None
    return planned


def _due_for_check() -> QuerySet[Machine]:
    """Unknown ones always; quarantined ones when they were seen again, once, unless a person quarantined them.

    One that is held in quarantine would be measured in vain.
    """
    since = Session.objects.filter(
        machine=OuterRef("pk"), purpose=Session.Purpose.HEALTH, created_at__gt=OuterRef("health_since")
    )
    seen_again = Q(health=Health.QUARANTINED, last_seen_at__gt=F("health_since"))
    machines = Machine.objects.filter(enabled=True).exclude(HELD)
    return machines.filter(Q(health=Health.UNKNOWN) | seen_again & ~Exists(since) & ~quarantined_by_person())
