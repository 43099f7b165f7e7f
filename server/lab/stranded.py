"""Waiting sessions whose machine is out of service: moved to a sister, or ended with the reason."""

from django.db import IntegrityError, transaction

from server.core.tasks import enqueue
from server.lab.attempts import end_session
from server.lab.hosts import Health
from server.lab.models import BootState, Machine, Session, SessionState

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
    for session in waiting.select_related("machine"):
        trouble = _trouble(session)
        if not trouble:
            continue
        if session.purpose == Session.Purpose.SERIES and _move(session, trouble):
            moved += 1
        else:
            canceled = session.purpose == Session.Purpose.HEALTH
            ended += end_session(session, SessionState.CANCELED if canceled else SessionState.FAILED, trouble)
    return moved, ended


def _trouble(session: Session) -> str:
    machine = session.machine
    if not machine.enabled:
        return f"machine {machine.name} is disabled"
    checked = session.purpose == Session.Purpose.HEALTH and machine.health == Health.QUARANTINED
    if machine.health not in _KEEPS and not checked:
        reason = f": {machine.health_reason}" if machine.health_reason else ""
        return f"machine {machine.name} is {_word(machine)}{reason}"
    lacking = sorted(set(session.needs) - set(machine.capabilities))
    return f"machine {machine.name} has no {', '.join(lacking)}" if lacking else ""


def _word(machine: Machine) -> str:
    return "in maintenance" if machine.health == Health.MAINTENANCE else machine.health


def _move(session: Session, trouble: str) -> bool:
    """Give a session of which nothing is measured to a machine that measures the same."""
    if session.boots.exclude(state=BootState.PLANNED).exists():
        return False
    sister = _sister(session)
    if sister is None:
        return False
    try:
        with transaction.atomic():
            moved = session.note(f"moved from {session.machine.name} to {sister.name}: {trouble}", machine=sister)
    except IntegrityError:
        # Another process planned a session of the series there first: that one measures it.
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
    return alike.exclude(sessions__series=session.series_id).exclude(pk=own.pk).order_by("name").first()
