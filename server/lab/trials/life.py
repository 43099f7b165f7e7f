"""The life of a trial: planned as soon as its kernels are final, given more boots, ended with a result or without."""

from datetime import datetime

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, Max, OuterRef, Q

from server.core import clock
from server.core.access.tries import MOST_BEGUN, OutOfBoundsError, bounded, failures, note_failure
from server.core.errors import DomainError
from server.core.reasons import NONE, Because, Reason
from server.core.tasks import enqueue
from server.lab.attempts.ends import cancel_attempt, end_session, wake_judge
from server.lab.hosts.state import Health
from server.lab.models import Attempt, Boot, BootState, Canary, Machine, Session, SessionState, Trial, TrialState
from server.lab.trials.kernels import (
    Pair,
    are_under_way,
    does_hash_tell,
    missing_kernel,
    retire_unequal,
    want_kernels,
)
from server.lab.trials.question import USUAL_LOOKS, Ask, choose_places, is_hopeless, want_trial
from server.lab.work import balanced_order, boot_order, plan_boots
from server.sources.models import Series, SeriesState


def cancel_session(session: Session, reason: Reason) -> bool:
    """Cancel a session that is not over; what is with an agent is stopped by the rounds, and ends after that."""
    attempt = session.attempts.filter(state__in=Attempt.ACTIVE).first()
    if attempt is not None and session.state != SessionState.PLANNED:
        return cancel_attempt(attempt, reason)
    return end_session(session, SessionState.CANCELED, reason)


# Boots that fail are repeated; a kernel that fails half of them is not worth the time of its machine.
_MOST_OF_LAST_LOOK = 2
_ENDED = (SessionState.DONE, SessionState.FAILED)
_TAKES_MORE = (Health.GOOD, Health.UNKNOWN)


def more_boots(session: Session, *, base: int, patched: int, reason: Reason) -> bool:
    """Have a done session boot so many times more, as soon as its machine is free.

    False, and nothing happens, where that cannot be: the session is concluded or not done, its trial is over, its
    machine is out of service, or its boots are used up by failures. Then it is to be concluded.
    """
    if min(base, patched) < 0 or base + patched == 0:
        raise ValueError(f"{session}: {base} and {patched} more boots")
    with transaction.atomic():
        # The trial first, as everybody who holds both.
        trials = Trial.objects.select_for_update(of=("self",), no_key=True).filter(
            pk=session.trial_id or 0, state=TrialState.MEASURING
        )
        rows = Session.objects.select_for_update(of=("self",)).select_related("machine")
        if not trials.exists() or not _takes_more(row := rows.get(pk=session.pk), base, patched):
            return False
        if not row.advance(SessionState.PLANNED, reason):
            return False
        _plan_boots(row, base, patched)
        enqueue("lab.dispatch")
    session.refresh_from_db()
    return True


def _takes_more(row: Session, base: int, patched: int) -> bool:
    if row.state != SessionState.DONE or row.concluded_at is not None or not row.looks:
        return False
    if not row.machine.enabled or row.machine.health not in _TAKES_MORE:
        return False
    there = row.boots.aggregate(**{str(arm): Count("pk", filter=Q(arm=arm)) for arm in Boot.Arm})
    most = _MOST_OF_LAST_LOOK * row.looks[-1]
    return bool(there[Boot.Arm.BASE] + base <= most and there[Boot.Arm.PATCHED] + patched <= most)


def _plan_boots(row: Session, base: int, patched: int) -> None:
    last = row.boots.aggregate(last=Max("position"))["last"]
    start = 0 if last is None else last + 1
    plan_boots(row, balanced_order(base, patched, start), start)


def conclude(session: Session, *, cut_short: bool, reason: Reason = NONE) -> bool:
    """Decide that a session gets no more boots; False if that is decided already, or it is under way.

    `cut_short`: more boots might have told more. The reason, if given, becomes that of the session. One that failed may
    have measured enough to be judged all the same.
    """
    with transaction.atomic():
        row = Session.objects.select_for_update(of=("self",)).get(pk=session.pk)
        if row.state not in _ENDED or row.concluded_at is not None:
            return False
        row.note(reason or row.said, concluded_at=clock.now(), cut_short=cut_short)
    session.refresh_from_db(fields=["reason", "reason_code", "concluded_at", "cut_short"])
    return True


log = structlog.get_logger(__name__)


def finish_trial(trial: Trial, state: str, reason: Reason, *, actor: str = "") -> bool:
    """End a trial and wake up who asked; False if another process ended it first."""
    with transaction.atomic():
        if trial.state in Trial.FINAL or not trial.advance(state, reason, actor=actor):
            return False
        enqueue("detection.answer", trial.pk)
    return True


def cancel_trial(trial: Trial, reason: Reason, actor: str = "") -> bool:
    """Nobody asks any more: what waits is canceled, what runs is stopped. False, and nothing happens, if it is over.

    What is measured already stays.
    """
    with transaction.atomic():
        # Held still, so that no session is planned or extended beside it.
        trial.refresh_from_db(from_queryset=Trial.objects.select_for_update(of=("self",), no_key=True))
        if not finish_trial(trial, TrialState.CANCELED, reason, actor=actor):
            return False
        _end_sessions(trial, reason)
    return True


def give_up_trial(*, trial_id: int, reason: Reason) -> bool:
    """Nobody can judge it: it fails with what is measured, and no more is. False if it is over."""
    with transaction.atomic():
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).filter(pk=trial_id).first()
        if trial is None or not finish_trial(trial, TrialState.FAILED, reason):
            return False
        _end_sessions(trial, reason)
    log.error("trial_given_up", trace=trial.trace, trial=trial.pk, reason=reason)
    return True


def _end_sessions(trial: Trial, reason: Reason) -> None:
    for session in trial.sessions.filter(state__in=Session.OPEN):
        cancel_session(session, reason)
    for session in trial.sessions.filter(state=SessionState.DONE, concluded_at=None):
        conclude(session, cut_short=True)


# Why a session is done without a boot.
SAME_CODE = "not booted: both kernels run the same code"
# Trials that one sweep tries: some seconds of work. The others have their turn in the next ones.
_AT_ONCE = 100
# Machines that a reason names.
_NAMED = 10


def trials_to_plan() -> list[int]:
    """Ids of wanted trials, those of high priority first; of very many, those that were tried the longest ago."""
    wanted = Trial.objects.filter(state=TrialState.WANTED).exclude(
        purpose=Trial.Purpose.SERIES, series__state__in=set(SeriesState.values) - {SeriesState.APPLIED}
    )
    by_priority = wanted.annotate(rank=F("base__tree__priority") + F("priority"))
    turn = by_priority.order_by(F("tried_at").asc(nulls_first=True), "-rank", "id")[:_AT_ONCE]
    found = [pk for pk, _rank in sorted(turn.values_list("pk", "rank"), key=lambda row: (-row[1], row[0]))]
    Trial.objects.filter(pk__in=found).update(tried_at=clock.now())
    failed = failures(_PLANNING)
    return sorted(found, key=lambda pk: f"{_PLANNING}{pk}" in failed)


# What is noted of trials whose planning took more than a worker has begins with it, and ends with the trial.
_PLANNING = "lab.plan_trial "


def plan_trials() -> None:
    """Plan those whose turn it is. One's trouble must not keep the others from their work.

    Raises OutOfBoundsError where time or memory of this process was not enough for one: the next call begins with the
    others, and with the third time that one fails.
    """
    for trial_id in trials_to_plan():
        try:
            with bounded(f"{_PLANNING}{trial_id}"):
                plan_trial(trial_id=trial_id)
        except (DomainError, IntegrityError) as error:
            log.warning("trial_not_planned", trial=trial_id, error=str(error))
        except OutOfBoundsError:
            if note_failure(f"{_PLANNING}{trial_id}") >= MOST_BEGUN:
                told = f"planning it took more than a worker has, {MOST_BEGUN} times"
                give_up_trial(trial_id=trial_id, reason=Because.NOT_JUDGED(told))
            raise


def plan_trial(*, trial_id: int) -> list[Session]:
    """Want the kernels of a wanted trial; once all of them are final, plan its sessions. Returns its sessions.

    A machine whose kernels cannot be built gets a session that failed with the reason, so that nothing is missing
    without being said. A trial that nothing can be measured of fails with the reason. Safe to repeat.
    """
    trial = Trial.objects.select_related("base__tree", "patched", "series__base").filter(pk=trial_id).first()
    if trial is None or trial.state != TrialState.WANTED:
        return [] if trial is None else list(trial.sessions.order_by("pk"))
    pairs = _kernels_of(trial)
    return [] if not pairs or retire_unequal(pairs) else _plan(trial, pairs)


def _kernels_of(trial: Trial) -> tuple[Pair, ...]:
    """What each machine is to boot, once all kernels are final; nothing before. Gives a hopeless trial up."""
    choice = choose_places(trial)
    if choice.trouble:
        finish_trial(trial, TrialState.FAILED, Because.NO_MACHINE(choice.trouble))
        return ()
    if choice.waits_for:
        _wait(trial, choice.waits_for)
        return ()
    if are_under_way(trial, choice.places):
        _wait(trial, "")
        return ()
    kernels = want_kernels(trial, choice.places)
    trouble = "" if kernels.pairs else f"no kernel can be made: {kernels.trouble}"
    if trouble and is_hopeless(trial):
        finish_trial(trial, TrialState.FAILED, Because.KERNEL_MISSING(trouble))
    else:
        _wait(trial, trouble)
    return kernels.pairs if all(pair.is_final for pair in kernels.pairs) else ()


def _wait(trial: Trial, reason: str) -> None:
    if trial.reason != reason:
        trial.note(Because.WAITS(reason) if reason else NONE)


def _plan(trial: Trial, pairs: tuple[Pair, ...]) -> list[Session]:
    with transaction.atomic():
        if not trial.advance(TrialState.MEASURING, Because.PLANNED(_where(pairs))):
            # Another process planned it, or it was canceled meanwhile.
            return []
        hash_tells = any(pair.has_one_hash for pair in pairs) and does_hash_tell(trial)
        sessions = [_plan_session(trial, pair, hash_tells=hash_tells) for pair in pairs]
        ended = next((session for session in sessions if session.state in Session.FINAL), None)
        if ended is not None:
            wake_judge(ended)
    return sessions


def _where(pairs: tuple[Pair, ...]) -> str:
    names = sorted(pair.machine.name for pair in pairs)
    more = len(names) - _NAMED
    return f"on {', '.join(names[:_NAMED])}" + (f" and {more} more" if more > 0 else "")


def _plan_session(trial: Trial, pair: Pair, *, hash_tells: bool) -> Session:
    of_series = trial.purpose == Trial.Purpose.SERIES
    session = Session.objects.create(
        purpose=Session.Purpose.SERIES if of_series else Session.Purpose.TRIAL,
        series=trial.series if of_series else None,
        trial=trial,
        looks=looks_on(trial, pair.machine),
        priority=trial.priority,
        machine=pair.machine,
        base_build=pair.base,
        patched_build=pair.patched,
        benchmarks=trial.benchmarks,
        state=SessionState.PLANNED,
        trace=trial.trace,
    ).record_creation()
    # Equal kernels are what A/A trials are about, and a canary measures them to see that it can be done.
    on_purpose = trial.purpose == Trial.Purpose.NOISE or (trial.series is not None and trial.series.canary)
    if pair.is_same_code(hash_tells=hash_tells) and not on_purpose:
        session.advance(SessionState.DONE, Because.SAME_CODE(SAME_CODE), concluded_at=clock.now())
        return session
    trouble = missing_kernel(trial, pair)
    plan_boots(session, boot_order(session.looks[0]))
    if trouble:
        session.advance(SessionState.FAILED, Because.KERNEL_MISSING(trouble))
        for boot in session.boots.all():
            boot.advance(BootState.FAILED, Because.KERNEL_MISSING("not booted: a kernel is missing"))
    return session


def looks_on(trial: Trial, machine: Machine) -> list[int]:
    """Boots a side at which a session of the trial is judged there.

    One look alone is a fixed number. Of several the first is what the machine's boots need to show their spread.
    """
    if len(trial.looks) == 1:
        return list(trial.looks)
    first = machine.boots_per_side
    return [first, *(look for look in trial.looks if look > first)]


_SECONDS_PER_HOUR = 3600.0


def want_series_trial(series: Series) -> Trial | None:
    """The trial of what an applied series costs; None for one that is not applied."""
    if series.state != SeriesState.APPLIED or series.base is None or series.head is None:
        return None
    canary = Canary.objects.select_related("machine").first() if series.canary else None
    return want_trial(
        Ask(
            key=f"series:{series.pk}",
            purpose=Trial.Purpose.SERIES,
            base=series.base,
            patched=series.head,
            looks=USUAL_LOOKS,
            trace=series.trace,
            series=series,
            machines=(canary.machine,) if canary else (),
            benchmarks=tuple(canary.cases if canary else wanted_benchmarks(series)),
            budget_seconds=settings.SERIES_HOURS * _SECONDS_PER_HOUR or None,
        )
    )


def want_series_trials(*, since: datetime | None = None) -> int:
    """Want the trial of every series applied `since` then that has none; returns how many.

    A sweep asks for those of late: that all others have theirs is looked at now and then.
    """
    asked = Trial.objects.filter(purpose=Trial.Purpose.SERIES, series=OuterRef("pk"))
    applied = Series.objects.filter(state=SeriesState.APPLIED)
    waiting = applied.filter(~Exists(asked)).select_related("base__tree", "head")
    if since is not None:
        waiting = waiting.filter(state_since__gte=since)
    return sum(want_series_trial(series) is not None for series in waiting.order_by("id"))


def wanted_benchmarks(series: Series) -> list[str]:
    """What a session of this series measures: what its paths ask for, with the default set, and what its tree wants.

    Empty, which means everything, for a series about which no rule spoke.
    """
    tree = series.base.tree.benchmarks if series.base else []
    return sorted({*series.benchmarks, *tree}) if series.benchmarks else []
