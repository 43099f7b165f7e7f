"""What a person may do about bisections; `actor` is that person."""

from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.bisecting.beginning import begin
from server.detection.bisecting.concluding import cancel_bisection
from server.detection.bisecting.locking import lock
from server.detection.models import Bisection, Finding

_WHY_NOT = "there is nothing to look for, a newer version has come, or this site does not bisect"


def ask_to_bisect(finding: Finding, actor: str) -> None:
    """Begin now what did not begin by itself. DomainError `not-bisected`, with the reason, where that cannot be."""
    _require(actor)
    with transaction.atomic():
        held = Finding.objects.select_for_update(of=("self",), no_key=True).get(pk=finding.pk)
        if held.bisections.exists():
            raise DomainError("not-bisected", f"finding {held.pk} was bisected already, or is being so")
        if begin(held, actor=actor) or held.culprit_id is not None:
            return
        said = next((row["text"] for row in held.checks if row.get("name") == "bisection"), "")
    raise DomainError("not-bisected", f"finding {finding.pk} ({finding.kind}, {finding.state}): {said or _WHY_NOT}")


def cancel_by_hand(finding: Finding, actor: str, reason: str) -> int:
    """End all bisections of the finding that are under way; returns how many."""
    _require(actor)
    if not reason.strip():
        raise DomainError("no-reason", "say why it is canceled")
    with transaction.atomic():
        running = finding.bisections.exclude(state__in=Bisection.FINAL).order_by("pk")
        bisections = [lock(pk) for pk in running.values_list("pk", flat=True)]
        if not bisections:
            raise DomainError("not-bisecting", f"finding {finding.pk} is not being bisected")
        for bisection in bisections:
            cancel_bisection(bisection, reason.strip(), actor=actor)
        enqueue("detection.tend", "bisections")
    return len(bisections)


def _require(actor: str) -> None:
    if not actor.strip():
        raise DomainError("no-actor", "say who does it")
