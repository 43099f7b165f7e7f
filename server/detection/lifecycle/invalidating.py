"""Taking a claim back: it was noise, only how code is placed, or the machine's doing."""

from enum import StrEnum

from django.db import transaction

from server.core.errors import DomainError
from server.detection.heads.releasing import release_unasked
from server.detection.lifecycle.locking import held
from server.detection.lifecycle.stopping import stop_trials
from server.detection.models import Finding


class Why(StrEnum):
    NOISE = "noise"
    LAYOUT = "layout"
    MACHINE = "machine"


def invalidate(finding: Finding, *, actor: str, why: Why, reason: str) -> bool:
    """Withdraw the finding; trials about it are canceled, and suspects that it never measured are asked about.

    `actor` is empty where the service decides. False if it is withdrawn already. DomainError `no-reason`, or
    `conflict` where a finding cannot be withdrawn any more.
    """
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk} is not withdrawn without a reason")
    with transaction.atomic():
        row = held(finding.pk)
        if row.state == Finding.State.INVALID:
            return False
        if Finding.State.INVALID not in Finding.NEXT.get(row.state, frozenset()):
            raise DomainError("conflict", f"finding {row.pk} is {Finding.State(row.state).label}: it stays so")
        row.advance(Finding.State.INVALID, f"{why.value}: {reason.strip()}", actor=actor)
        stop_trials(row, f"finding {row.pk} is withdrawn")
        release_unasked(row)
        finding.state, finding.reason, finding.state_since = row.state, row.reason, row.state_since
    return True
