"""Waiting sessions whose machine is out of service: moved to a sister, or ended with the reason."""

from django.db import IntegrityError, transaction
from django.db.models import Q

from server.core import clock
from server.core.tasks import enqueue
from server.lab.attempts import end_session
from server.lab.hosts import Health
from server.lab.models import BootState, Machine, Session, SessionState, Trial
from server.lab.out_of_service import out_of_service
from server.lab.requeueing import was_done
from server.lab.trials.choosing import PATIENCE_FOR_ALL, PATIENCE_FOR_ANY

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
            ended += end_session(session, SessionState.CANCELED if canceled else SessionState.FAILED, trouble)
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
    if session.trial is not None:
        return not session.trial.machines.exists()
    return session.purpose == Session.Purpose.SERIES


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
    of_trial, of_series = (
        Q(trial=session.trial_id, trial__isnull=False),
        Q(series=session.series_id, series__isnull=False),
    )
    others = Session.objects.filter(of_trial | of_series)
    return alike.exclude(pk__in=others.values("machine")).exclude(pk=own.pk).order_by("name").first()
