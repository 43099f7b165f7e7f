"""Looking at what a trial measured so far: more boots where they may decide something, else its comparisons."""

from collections.abc import Sequence

import structlog
from django.db import transaction
from django.db.models import Count, Q

from server.core.errors import DomainError
from server.detection.cells import MeasuredCell, read_cells
from server.detection.doubting import doubts_about
from server.detection.judging import design_of, fresh_comparisons, is_fixed
from server.detection.models import Comparison
from server.detection.scope import has_told, judged_sessions
from server.lab.models import Boot, Machine, Session, SessionState, Trial, TrialState
from server.lab.trials.costs import spent
from server.lab.trials.ending import finish_trial
from server.lab.trials.extending import conclude, more_boots
from server.stats.evidence import with_data
from server.stats.sequential import Progress, next_step

log = structlog.get_logger(__name__)

# Boots without values of a cell are run again. Where a kernel has run so many times its last look and still lacks
# values, they will not come: the case or the kernel is broken there.
_PATIENCE = 1.5
_AT_ONCE = 500


def look_at_trial(*, trial_id: int) -> bool:
    """Take every look that is due; when no session may go on, store the comparisons and end the trial.

    Returns whether the trial is over. Safe to repeat, and at once from many processes: whoever comes second waits and
    finds nothing left to do. Raises DomainError `trial-unknown`.
    """
    with transaction.atomic():
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).filter(pk=trial_id).first()
        if trial is None:
            raise DomainError("trial-unknown", f"there is no trial {trial_id}")
        if trial.state != TrialState.MEASURING:
            return trial.state in Trial.FINAL
        sessions = _sessions(trial)
        _take_looks(trial, sessions)
        if any(_goes_on(session) for session in sessions):
            return False
        _finish(trial, sessions)
    return True


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
    """A session that failed after boots enough for its first look is judged by them, unless its machine is in doubt.

    That its kernel failed does not follow from what it had measured, so the last look takes what is left of alpha.
    """
    if session.machine.health == Machine.Health.QUARANTINED:
        return
    counts = session.boots.aggregate(
        base=Count("pk", filter=Q(arm=Boot.Arm.BASE, state=Boot.State.MEASURED)),
        patched=Count("pk", filter=Q(arm=Boot.Arm.PATCHED, state=Boot.State.MEASURED)),
    )
    if not session.looks or min(counts.values()) < session.looks[0]:
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
    hopeful = [cells[index] for index in progress.open_cells if not _is_hopeless(cells[index])]
    if not hopeful:
        conclude(session, cut_short=False)
        return
    if not _budget_left(trial) or not _ask_for_more(session, hopeful, progress):
        conclude(session, cut_short=True)


def _is_hopeless(cell: MeasuredCell) -> bool:
    """Whether one of its kernels gives no values, or far too few for the boots that it had."""
    ready, looks = with_data(cell.values), design_of(cell.session).looks
    return any(
        (not useful and len(run) >= looks[0]) or (len(run) >= _PATIENCE * looks[-1] and len(useful) < looks[-1])
        for run, useful in ((cell.values.base, ready.base), (cell.values.patched, ready.patched))
    )


def _ask_for_more(session: Session, hopeful: Sequence[MeasuredCell], progress: Progress) -> bool:
    reason = f"{len(hopeful)} of {len(progress.cells)} cells need more boots"
    if len(hopeful) < len(progress.open_cells):
        # Cells that are given up must not say how many boots come next.
        progress = next_step([cell.values for cell in hopeful], design_of(session))
    if progress.base_boots + progress.patched_boots == 0:
        return False
    return more_boots(session, base=progress.base_boots, patched=progress.patched_boots, reason=reason)


def _budget_left(trial: Trial) -> bool:
    return trial.budget_seconds is None or spent([trial.pk]).seconds < trial.budget_seconds


def _finish(trial: Trial, sessions: Sequence[Session]) -> None:
    """Judge all cells as one family, and end the trial."""
    judged = [session for session in judged_sessions(sessions)[0] if has_told(session)]
    rows = Comparison.objects.bulk_create(fresh_comparisons(judged), batch_size=_AT_ONCE)
    log.info("trial_judged", trace=trial.trace, trial=trial.pk, sessions=len(judged), cells=len(rows))
    if any(has_told(session) for session in sessions):
        finish_trial(trial, TrialState.DONE, f"{len(rows)} cells judged")
    else:
        reasons = "; ".join(f"{session.machine.name}: {session.reason}" for session in sessions)
        finish_trial(trial, TrialState.FAILED, reasons or "no machine measured it")
