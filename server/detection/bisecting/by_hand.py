"""What a person may do about bisections; `actor` is that person."""

from collections.abc import Sequence

from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.bisecting.beginning import begin, may_search
from server.detection.bisecting.concluding import cancel_bisection
from server.detection.bisecting.locking import lock
from server.detection.bisecting.searching_again import hold, search_again, unanswered
from server.detection.models import Bisection, Finding

_WHY_NOT = "there is nothing to look for, a newer version has come, or this site does not bisect"


def ask_to_bisect(finding: Finding, actor: str) -> None:
    """Begin now what did not begin by itself, or search anew where a search gave up or was canceled.

    DomainError `not-bisected`, with the reason, where that cannot be.
    """
    _require(actor)
    with transaction.atomic():
        bisections, held = hold(finding.pk)
        if held.bisections.exists():
            _ask_again(held, bisections, actor)
            return
        if begin(held, actor=actor) or held.culprit_id is not None:
            return
        said = next((row["text"] for row in held.checks if row.get("name") == "bisection"), "")
    raise DomainError("not-bisected", f"finding {finding.pk} ({finding.kind}, {finding.state}): {said or _WHY_NOT}")


def _ask_again(finding: Finding, bisections: Sequence[Bisection], actor: str) -> None:
    """Another round of the searches that have no answer."""
    if finding.bisections.exclude(state__in=Bisection.FINAL).exists():
        raise DomainError("not-bisected", f"finding {finding.pk} is being bisected")
    ended = unanswered(bisections)
    if not ended:
        raise DomainError("not-bisected", f"finding {finding.pk} was bisected already, with an answer")
    if not may_search(finding):
        raise DomainError("not-bisected", f"finding {finding.pk} ({finding.kind}, {finding.state}): {_WHY_NOT}")
    if not search_again(finding, bisections, ended, reason="looking for its revision once more", actor=actor):
        raise DomainError("not-bisected", f"finding {finding.pk}: no cell speaks for its change there any more")


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
