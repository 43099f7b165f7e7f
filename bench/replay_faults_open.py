"""What is not over yet in a database, and whether anything moved in it."""

from django.db.models import Max

from server.builds.models import Build, BuildState
from server.core.models import Transition
from server.detection.models import Comparison, Finding
from server.lab.models import Attempt, Session, Trial
from server.sources.models import Series


def last_change() -> tuple[int, int]:
    """It differs after anything moved."""
    moved = Transition.objects.aggregate(last=Max("pk"))["last"] or 0
    return moved, Comparison.objects.count()


def open_work() -> dict[str, int]:
    """What is not over yet, by kind."""
    open_findings = [Finding.State.CANDIDATE, Finding.State.BISECTING]
    counts = {
        "builds": Build.objects.filter(state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING]),
        "sessions": Session.objects.exclude(state__in=Session.FINAL),
        "attempts": Attempt.objects.filter(state__in=Attempt.ACTIVE),
        "trials": Trial.objects.exclude(state__in=Trial.FINAL),
        "unanswered trials": Trial.objects.filter(answered_at=None, state__in=Trial.FINAL),
        "series without a finding": Series.objects.filter(state=Series.State.APPLIED, finding=None),
        "findings": Finding.objects.filter(state__in=open_findings),
    }
    found = {name: rows.count() for name, rows in counts.items()}
    return {name: count for name, count in found.items() if count}


def agents_at_work() -> bool:
    """Whether an agent has something to do: then waiting for it is no standing still."""
    return Attempt.objects.filter(state=Attempt.State.RUNNING).exists()
