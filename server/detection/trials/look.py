"""Looking at what a trial measured so far: more boots where they may decide something, else its comparisons, stored
at once.
"""

from collections.abc import Sequence

import structlog
from django.db import connection, transaction
from django.db.models import Count, Q

from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.models import Comparison
from server.detection.trials.judgement import (
    MeasuredCell,
    boots_to_next_look,
    design_of,
    fresh_comparisons,
    is_fixed,
    is_settled,
    read_cells,
)
from server.detection.trials.scope import doubts_about, has_told, judged_sessions
from server.lab.models import Boot, Session, SessionState, Trial, TrialState
from server.lab.trials.life import conclude, finish_trial, more_boots
from server.lab.trials.question import spent_by_session
from server.stats.cells import Values
from server.stats.comparison.decisions import Progress, next_step

_TABLE = Comparison._meta.db_table
# All that a comparison says; the database counts its id.
_FIELDS = tuple(field for field in Comparison._meta.concrete_fields if not field.primary_key)


def store_comparisons(rows: Sequence[Comparison]) -> None:
    """Write unsaved comparisons; their ids are the database's, and not set here. Runs in the caller's transaction.

    Building and parsing an INSERT of so many parameters takes longer than all of judging them.
    """
    now = clock.now()
    columns = ", ".join(f'"{field.column}"' for field in _FIELDS)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{_TABLE}" ({columns}) FROM STDIN') as copy:
        for row in rows:
            row.computed_at = now
            copy.write_row([getattr(row, field.attname) for field in _FIELDS])


log = structlog.get_logger(__name__)

# Boots without values of a cell are run again. Where a kernel has run so many times its last look and still lacks
# values, they will not come: the case or the kernel is broken there.
_PATIENCE = 1.5


def look_at_trial(*, trial_id: int) -> bool:
    """Take every look that is due; when no session may go on, store the comparisons and end the trial.

    Returns whether the trial is over. Safe to repeat, and at once from many processes: whoever comes second waits and
    finds nothing left to do. Raises DomainError `trial-unknown`.
    """
    with transaction.atomic():
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).filter(pk=trial_id).first()
        if trial is None:
            raise DomainError("trial-unknown", f"there is no trial {trial_id}")
        if trial.state == TrialState.CANCELED:
            _conclude_late(trial)
        if trial.state != TrialState.MEASURING:
            return trial.state in Trial.FINAL
        sessions = _sessions(trial)
        _take_looks(trial, sessions)
        if any(_goes_on(session) for session in sessions):
            return False
        _finish(trial, sessions)
    return True


def _conclude_late(trial: Trial) -> None:
    """Sessions whose last boot came in before their agent heard that nobody asks any more."""
    for session in trial.sessions.filter(state=SessionState.DONE, concluded_at=None):
        conclude(session, cut_short=True)


def _sessions(trial: Trial) -> list[Session]:
    rows = trial.sessions.select_related("machine__uarch", "base_build", "patched_build")
    return list(rows.order_by("machine__name"))


def _goes_on(session: Session) -> bool:
    return session.state not in Session.FINAL or (session.state == SessionState.DONE and session.concluded_at is None)


def _take_looks(trial: Trial, sessions: Sequence[Session]) -> None:
    judged = {session.pk for session in judged_sessions(sessions)[0]}
    for session in sessions:
        if session.concluded_at is not None:
            continue
        if session.state == SessionState.FAILED and session.pk in judged:
            _keep_what_it_told(session)
        elif session.state == SessionState.DONE and session.pk not in judged:
            conclude(session, cut_short=False)
        elif session.state == SessionState.DONE:
            _look(trial, session)


def _keep_what_it_told(session: Session) -> None:
    """A session that failed after boots enough for its first look is judged by them, unless its machine was in doubt.

    That its kernel failed does not follow from what it had measured, so the last look takes what is left of alpha. How
    the machine is by now says nothing: it may be mended while other sessions of the trial go on, or break after this.
    """
    if session.reason_code == Because.QUARANTINED:
        return
    counts = session.boots.aggregate(
        base=Count("pk", filter=Q(arm=Boot.Arm.BASE, state=Boot.State.MEASURED)),
        patched=Count("pk", filter=Q(arm=Boot.Arm.PATCHED, state=Boot.State.MEASURED)),
    )
    if min(counts.values()) < session.looks[0]:
        return
    conclude(session, cut_short=True)


def _look(trial: Trial, session: Session) -> None:
    """One look at a session that is done: it gets more boots, or is concluded."""
    if is_fixed(session) or session.pk in doubts_about([session]):
        # More boots tell nothing more of a session that is not believed.
        conclude(session, cut_short=False)
        return
    cells = read_cells([session])
    progress = next_step([cell.values for cell in cells], design_of(session))
    still_open, unsettled = (
        [cells[index] for index in places if not _is_hopeless(cells[index])]
        for places in (progress.open_cells, _unsettled(progress))
    )
    if not still_open and not unsettled:
        conclude(session, cut_short=False)
    elif not _budget_left(trial, session) or not _ask_for_more(session, still_open, unsettled):
        conclude(session, cut_short=True)


def _unsettled(progress: Progress) -> list[int]:
    return [index for index, cell in enumerate(progress.cells) if not is_settled(cell)]


def _is_hopeless(cell: MeasuredCell) -> bool:
    """Whether one of its kernels gives no values, no more, or far too few for the boots that it had.

    A case that a new version of its benchmark brought between two visits has none in the first boots, one that it took
    away none in the last: neither can be compared over all boots.
    """
    looks = design_of(cell.session).looks
    return any(_gives_too_few(run, looks) for run in (cell.values.base, cell.values.patched))


def _gives_too_few(run: Sequence[Values], looks: Sequence[int]) -> bool:
    useful = [len(values) > 0 for values in run]
    if len(run) >= looks[0] and not (any(useful[: looks[0]]) and any(useful[-looks[0] :])):
        return True
    return len(run) >= _PATIENCE * looks[-1] and sum(useful) < looks[-1]


def _ask_for_more(session: Session, still_open: Sequence[MeasuredCell], unsettled: Sequence[MeasuredCell]) -> bool:
    """Boots until the next look of these cells; those that are given up do not say how many."""
    base, patched = boots_to_next_look([*still_open, *unsettled])
    if base + patched == 0:
        return False
    told = [f"cells that need more boots: {len(still_open)}"] if still_open else []
    told += [f"changes to be seen again: {len(unsettled)}"] if unsettled else []
    return more_boots(session, base=base, patched=patched, reason=Because.MORE_BOOTS("; ".join(told)))


def _budget_left(trial: Trial, session: Session) -> bool:
    """Others use up no more than their equal shares of the budget: how long a boot took is what its machine says."""
    if trial.budget_seconds is None:
        return True
    seconds = spent_by_session(trial.pk)
    share = trial.budget_seconds / max(len(seconds), 1)
    own = seconds.pop(session.pk, 0.0)
    return own + sum(min(other, share) for other in seconds.values()) < trial.budget_seconds


def _finish(trial: Trial, sessions: Sequence[Session]) -> None:
    """Judge all cells, and end the trial."""
    judged = [session for session in judged_sessions(sessions)[0] if has_told(session)]
    rows = fresh_comparisons(judged)
    store_comparisons(rows)
    log.info("trial_judged", trace=trial.trace, trial=trial.pk, sessions=len(judged), cells=len(rows))
    if any(has_told(session) for session in sessions):
        finish_trial(trial, TrialState.DONE, Because.JUDGED(f"{len(rows)} cells judged"))
    else:
        reasons = "; ".join(f"{session.machine.name}: {session.reason}" for session in sessions)
        finish_trial(trial, TrialState.FAILED, Because.NOT_MEASURED(reasons))
