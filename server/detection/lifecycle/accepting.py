"""Accepting a regression: who, why, where, until when; and taking that back."""

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import F

from server.core import clock
from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.lifecycle.fixing import regressed_comparisons
from server.detection.lifecycle.ledger import is_covered, state_before, write_line
from server.detection.lifecycle.locking import held
from server.detection.models import Acceptance, Finding, FindingState
from server.results.models import Metric

_LONGEST_PERSON = 150


def accept(
    finding: Finding,
    *,
    actor: str,
    reason: str,
    metric: Metric | None = None,
    uarchs: Collection[str] = (),
    expires_at: datetime | None = None,
) -> Acceptance:
    """Write a line into the ledger. Once the lines cover every regression of the finding, it is ACCEPTED.

    No `metric` and no `uarchs` mean all of them. DomainError `no-reason`, `nobody`, `expired`, `nothing-to-accept`,
    `uarch-unknown` or `conflict`.
    """
    person = actor.strip()[:_LONGEST_PERSON]
    _refuse_empty(finding, person, reason)
    if expires_at is not None and expires_at <= clock.now():
        raise DomainError("expired", f"{expires_at:%Y-%m-%d %H:%M} UTC is over")
    with transaction.atomic():
        row = held(finding.pk)
        _refuse_state(row)
        _refuse_nothing(row, metric, uarchs)
        line = Acceptance.objects.create(
            finding=row,
            metric=metric,
            uarchs=sorted(set(uarchs)),
            reason=reason.strip(),
            person=person,
            expires_at=expires_at,
        )
        _follow_ledger(row, _line(line), person)
    finding.refresh_from_db(fields=["state", "reason", "state_since"])
    return line


def withdraw_acceptance(line: Acceptance, *, actor: str, reason: str) -> bool:
    """Take one line back; the finding is again where it was, unless other lines cover it. False if it is withdrawn.

    DomainError `no-reason` or `nobody`.
    """
    person = actor.strip()[:_LONGEST_PERSON]
    with transaction.atomic():
        row = held(line.finding_id)
        _refuse_empty(row, person, reason)
        if Acceptance.objects.filter(pk=line.pk, withdrawn_at=None).update(withdrawn_at=clock.now()) != 1:
            return False
        _follow_ledger(row, f"acceptance {line.pk} is withdrawn: {reason.strip()}", person)
    return True


def expire_acceptances() -> int:
    """For the sweep: accepted findings that the ledger does not cover any more go back; returns how many."""
    expired = Finding.objects.filter(
        state=Finding.State.ACCEPTED,
        acceptances__withdrawn_at=None,
        acceptances__expires_at__lte=clock.now(),
        acceptances__expires_at__gte=F("state_since"),
    )
    moved = 0
    for finding_id in expired.order_by("pk").values_list("pk", flat=True).distinct():
        with transaction.atomic():
            row = held(finding_id)
            if row.state == Finding.State.ACCEPTED and not is_covered(row):
                moved += _go_back(row, "its acceptance has expired", "")
    return moved


def _follow_ledger(row: Finding, reason: str, actor: str) -> None:
    """Move the finding to where the ledger says; a line that moves nothing is history all the same."""
    covered = is_covered(row)
    if covered and row.state != Finding.State.ACCEPTED:
        row.advance(Finding.State.ACCEPTED, reason, actor=actor)
    elif not covered and row.state == Finding.State.ACCEPTED:
        _go_back(row, reason, actor)
    else:
        write_line(row, reason, actor)


def _go_back(row: Finding, reason: str, actor: str) -> bool:
    """Reports and bisections look at it again; what was a candidate is checked again by the sweep."""
    enqueue("reports.sweep")
    # A search that was canceled by the acceptance is wanted again.
    enqueue("detection.tend", "bisections")
    return row.advance(state_before(row, FindingState.ACCEPTED), reason, actor=actor)


def _line(line: Acceptance) -> str:
    where = f" on {', '.join(line.uarchs)}" if line.uarchs else ""
    what = f"{line.metric.name}{where}" if line.metric else f"all{where}"
    until = f" until {line.expires_at:%Y-%m-%d %H:%M} UTC" if line.expires_at else ""
    return f"accepted ({what}{until}): {line.reason}"


def _refuse_empty(finding: Finding, person: str, reason: str) -> None:
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who decides this is not said")
    if not reason.strip():
        raise DomainError("no-reason", f"finding {finding.pk}: why is not said")


def _refuse_state(row: Finding) -> None:
    known = row.state == Finding.State.ACCEPTED
    if not known and Finding.State.ACCEPTED not in Finding.NEXT.get(row.state, frozenset()):
        raise DomainError("conflict", f"finding {row.pk} is {Finding.State(row.state).label}: nothing to accept")


def _refuse_nothing(row: Finding, metric: Metric | None, uarchs: Collection[str]) -> None:
    regressed = regressed_comparisons(row)
    known = {one.session.machine.uarch.name for one in regressed}
    if strange := sorted(set(uarchs) - known):
        told = ", ".join(sorted(known)) or "none"
        raise DomainError(
            "uarch-unknown", f"finding {row.pk} did not regress on {', '.join(strange)}; it did on {told}"
        )
    wanted = [one for one in regressed if metric is None or one.metric_id == metric.pk]
    if not wanted:
        of = f" in {metric.name}" if metric else ""
        raise DomainError("nothing-to-accept", f"finding {row.pk} did not regress{of}")
