"""Steps of attempts: who takes one holds still what it concerns, and the host follows."""

from typing import Any

from django.db import transaction

from server.builds.models import Build
from server.lab.hosts import follow_attempt
from server.lab.models import Attempt, AttemptState, PowerCycle, Session

# States in which an agent may come for an attempt.
UNCLAIMED = frozenset({AttemptState.SUBMITTING, AttemptState.QUEUED})


def lock_attempt(attempt: Attempt) -> None:
    """Hold the attempt's work and the attempt still to the end of the transaction, and read how the attempt is by now.

    Everybody takes them in this order, hosts after them: so nobody waits for somebody who waits for them.
    """
    for model, pk in ((Build, attempt.build_id), (Session, attempt.session_id), (PowerCycle, attempt.power_cycle_id)):
        if pk is not None:
            list(model._default_manager.select_for_update(of=("self",)).filter(pk=pk).values_list("pk"))
    rows = Attempt.objects.select_for_update(of=("self",))
    attempt.refresh_from_db(
        fields=["state", "reason", "agent", "losing", "arrived_at", "lease_until"], from_queryset=rows
    )


def move_attempt(attempt: Attempt, to: str, reason: str, **fields: Any) -> bool:
    """Advance the attempt, and the state of its host with it; False, and nothing is changed, if it moved meanwhile."""
    with transaction.atomic():
        if not attempt.advance(to, reason, **fields):
            return False
        follow_attempt(attempt)
    return True
