"""What was mended has come back: the finding stands again."""

from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.lifecycle.ledger import state_before
from server.detection.lifecycle.locking import held
from server.detection.models import Finding, FindingState


def reopen(finding: Finding, *, actor: str, reason: str) -> None:
    """FIXED -> where it was before. DomainError `no-reason`, `nobody`, or `conflict` for one that is not mended."""
    if not actor.strip():
        raise DomainError("nobody", f"finding {finding.pk}: who decides this is not said")
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk}: why is not said")
    with transaction.atomic():
        row = held(finding.pk)
        if row.state != FindingState.FIXED:
            raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}, not mended")
        row.advance(state_before(row, FindingState.FIXED), reason.strip(), actor=actor.strip(), fix=None)
        enqueue("reports.sweep")
        enqueue("detection.tend", "bisections")
    finding.refresh_from_db(fields=["state", "reason", "state_since", "fix"])
