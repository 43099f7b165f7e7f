"""Whether the machines that a claim rests on were, and are, what they should be."""

from collections.abc import Iterable
from datetime import datetime

from django.db.models import Max, Min, Q

from server.core.models import Transition
from server.detection.lifecycle.checks import Check, Name, Outcome
from server.detection.noise.base_drift import base_drift
from server.lab.hardware import changes_since
from server.lab.models import LATE, Machine, Session, Trial


def machine_checks(sessions: Iterable[Session]) -> list[Check]:
    """One answer about each session's machine.

    A claim falls with a machine that is quarantined, or was while it measured, or whose hardware or firmware is another
    since. What is in somebody's hands, or waits for a look of its own, says nothing against what it measured.
    """
    chosen = sorted(sessions, key=lambda session: session.machine.name)
    spans = _spans(chosen)
    return [_check(session.machine, *spans[session.pk]) for session in chosen]


def base_checks(trial: Trial) -> list[Check]:
    """One answer for each machine that measures the base kernel otherwise than the last time.

    No machine is named for them: they take no claim away. Both kernels were booted in turn, so a level that moved
    before the session is in both of them; a question about the machine is open all the same.
    """
    stands = "both kernels were booted in turn, so the ratio stands"
    return [
        Check(Name.BASE, Outcome.FAILED, f"{machine.name}: {text}; {stands}") for machine, text in base_drift(trial)
    ]


def _spans(sessions: Iterable[Session]) -> dict[int, tuple[datetime, datetime]]:
    """By session, when its first boot began and when its last one ended."""
    chosen = Session.objects.filter(pk__in=[session.pk for session in sessions])
    # A result that came late was no part of what was judged.
    judged = ~Q(boots__outcome=LATE)
    rows = chosen.annotate(began=Min("boots__started_at", filter=judged), ended=Max("boots__ended_at", filter=judged))
    return {row.pk: (row.began or row.created_at, row.ended or row.state_since) for row in rows}


def _check(machine: Machine, began: datetime, ended: datetime) -> Check:
    if changed := changes_since(machine, began):
        text = f"{machine.name} is another machine since it measured this: {changed}"
        return Check(Name.MACHINE, Outcome.FAILED, text, machine.name)
    if machine.health == Machine.Health.QUARANTINED:
        text = f"{machine.name} is quarantined: {machine.health_reason or 'no reason given'}"
        return Check(Name.MACHINE, Outcome.FAILED, text, machine.name)
    lines = Transition.objects.filter(subject="machine-health", subject_id=machine.pk, at__range=(began, ended))
    ill = lines.filter(after=Machine.Health.QUARANTINED).order_by("id").first()
    if ill is not None:
        text = f"{machine.name} was quarantined while it measured this: {ill.reason or 'no reason given'}"
        return Check(Name.MACHINE, Outcome.FAILED, text, machine.name)
    if machine.health == Machine.Health.GOOD:
        return Check(
            Name.MACHINE, Outcome.PASSED, f"{machine.name} is good, and was when it measured this", machine.name
        )
    now = Machine.Health(machine.health).label
    return Check(Name.MACHINE, Outcome.NOT_CHECKED, f"{machine.name} is now {now}", machine.name)
