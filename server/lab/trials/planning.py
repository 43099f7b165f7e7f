"""From a wanted trial to its sessions: as soon as all its kernels are final, one on each machine."""

from django.db import transaction
from django.db.models import F

from server.core import clock
from server.lab.models import BootState, Machine, Session, SessionState, Trial, TrialState
from server.lab.trials.choosing import choose_places, is_hopeless
from server.lab.trials.ending import finish_trial
from server.lab.trials.kernels import (
    Pair,
    are_under_way,
    does_hash_tell,
    missing_kernel,
    retire_unequal,
    want_kernels,
)
from server.lab.trials.ordering import boot_order, plan_boots
from server.lab.waking import wake_judge
from server.sources.models import SeriesState

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
    return found


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
        finish_trial(trial, TrialState.FAILED, choice.trouble)
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
        finish_trial(trial, TrialState.FAILED, trouble)
    else:
        _wait(trial, trouble)
    return kernels.pairs if all(pair.is_final for pair in kernels.pairs) else ()


def _wait(trial: Trial, reason: str) -> None:
    if trial.reason != reason:
        trial.note(reason)


def _plan(trial: Trial, pairs: tuple[Pair, ...]) -> list[Session]:
    with transaction.atomic():
        if not trial.advance(TrialState.MEASURING, _where(pairs)):
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
    # Equal kernels are what A/A trials are about.
    if pair.is_same_code(hash_tells=hash_tells) and trial.purpose != Trial.Purpose.NOISE:
        session.advance(SessionState.DONE, SAME_CODE, concluded_at=clock.now())
        return session
    trouble = missing_kernel(trial, pair)
    plan_boots(session, boot_order(session.looks[0]))
    if trouble:
        session.advance(SessionState.FAILED, trouble)
        for boot in session.boots.all():
            boot.advance(BootState.FAILED, "not booted: a kernel is missing")
    return session


def looks_on(trial: Trial, machine: Machine) -> list[int]:
    """Boots a side at which a session of the trial is judged there.

    One look alone is a fixed number. Of several the first is what the machine's boots need to show their spread.
    """
    if len(trial.looks) == 1:
        return list(trial.looks)
    first = machine.boots_per_side
    return [first, *(look for look in trial.looks if look > first)]
