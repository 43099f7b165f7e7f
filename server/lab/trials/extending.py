"""What the sequential design does with a session that is done: more boots, or an end."""

from django.db import transaction
from django.db.models import Count, Max, Q

from server.core import clock
from server.core.tasks import enqueue
from server.lab.hosts import Health
from server.lab.models import Boot, Session, SessionState, Trial, TrialState
from server.lab.trials.ordering import balanced_order, plan_boots

# Boots that fail are repeated; a kernel that fails half of them is not worth the time of its machine.
_MOST_OF_LAST_LOOK = 2
_ENDED = (SessionState.DONE, SessionState.FAILED)
_TAKES_MORE = (Health.GOOD, Health.UNKNOWN)


def more_boots(session: Session, *, base: int, patched: int, reason: str) -> bool:
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


def conclude(session: Session, *, cut_short: bool, reason: str = "") -> bool:
    """Decide that a session gets no more boots; False if that is decided already, or it is under way.

    `cut_short`: more boots might have told more. The reason, if given, becomes that of the session. One that failed may
    have measured enough to be judged all the same.
    """
    with transaction.atomic():
        row = Session.objects.select_for_update(of=("self",)).get(pk=session.pk)
        if row.state not in _ENDED or row.concluded_at is not None:
            return False
        row.note(reason or row.reason, concluded_at=clock.now(), cut_short=cut_short)
    session.refresh_from_db(fields=["reason", "concluded_at", "cut_short"])
    return True
