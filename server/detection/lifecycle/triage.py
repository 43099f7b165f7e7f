"""Triage: who looks after a finding, and acts of people that were decided on what a page showed.

Two may have the same list before them, or a page and a script. Each act can say up to which step of a finding's life
it was shown; where a person has acted since then, or the finding has moved, nothing is done, and the one who comes
second is told what happened.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from django.contrib.auth.models import Permission, User
from django.db import transaction
from django.db.models import F, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce

from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, Transition
from server.core.reasons import Because
from server.detection.findings.checks import held
from server.detection.lifecycle.ledger import write_line
from server.detection.lifecycle.retest import retest_finding
from server.detection.models import Finding, FindingState
from server.lab.models import Machine, Trial
from server.sources.models import Series

TRIAGE = "detection.change_finding"
_MOST_TOLD = 5
_LONGEST_TOLD = 200


def triagers() -> QuerySet[User]:
    """People who may decide about findings, by their login names."""
    room, codename = TRIAGE.split(".")
    right = Permission.objects.filter(content_type__app_label=room, codename=codename)
    allowed = Q(is_superuser=True) | Q(user_permissions__in=right) | Q(groups__permissions__in=right)
    return User.objects.filter(allowed, is_active=True).distinct().order_by("username")


def with_seen(findings: QuerySet[Finding]) -> QuerySet[Finding]:
    """Findings that know how far their life has come: `seen`, read in one look with the rest."""
    steps = Transition.objects.filter(subject="finding", subject_id=OuterRef("pk")).order_by("-id").values("id")
    return findings.annotate(seen=Coalesce(Subquery(steps[:1]), 0))


def seen_now(finding_id: int) -> int:
    """To be asked before what is shown of the finding is read: what happens in between is then not taken as seen."""
    return Transition.objects.filter(subject="finding", subject_id=finding_id).aggregate(Max("id"))["id__max"] or 0


@contextmanager
def as_seen(finding_id: int, seen: int | None, *, beside: int | None = None) -> Iterator[Finding]:
    """The finding, held, if it is still as it was shown after step `seen`. DomainError `changed` where it is not.

    None is of a script that did not look: it acts on the finding as it is. What is done to another one as well is held
    `beside` it, in the order of their numbers: two people who name each other's finding would wait for each other.
    """
    with transaction.atomic():
        rows = {pk: held(pk) for pk in sorted({finding_id, finding_id if beside is None else beside})}
        row = rows[finding_id]
        if seen is not None:
            _refuse_stale(row, seen)
        yield row


def assign(finding: Finding, assignee: User | None, *, actor: str) -> bool:
    """Have `assignee` look after it, or nobody. False if it was so already.

    DomainError `nobody`, `not-a-triager`, or `conflict` for a finding that is over.
    """
    person = actor.strip()[:LONGEST_ACTOR]
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who decides this is not said")
    if assignee is not None and not (assignee.is_active and assignee.has_perm(TRIAGE)):
        raise DomainError("not-a-triager", f"{assignee.get_username()} lacks the permission {TRIAGE}")
    with transaction.atomic():
        row = held(finding.pk)
        if row.assignee_id == (assignee.pk if assignee else None):
            return False
        if assignee is not None and row.state in (FindingState.INVALID, FindingState.SUPERSEDED):
            raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}: it needs nobody")
        Finding.objects.filter(pk=row.pk).update(assignee=assignee)
        told = f"assigned to {assignee.get_username()}" if assignee else "assigned to nobody"
        write_line(row, Because.ASSIGNED(told), person)
    finding.assignee = assignee
    return True


def retest(
    finding: Finding,
    *,
    seen: int | None,
    actor: str,
    reason: str,
    machines: Collection[Machine] = (),
    benchmarks: Collection[str] = (),
) -> tuple[Trial, bool]:
    """Have it measured again (`retest_finding`), if it is still as it was shown."""
    with transaction.atomic():
        # Who answers a trial holds the series first as well.
        Series.objects.select_for_update(of=("self",), no_key=True).filter(pk=finding.series_id or 0).first()
        row = held(finding.pk)
        if seen is not None:
            _refuse_stale(row, seen)
        return retest_finding(row, actor=actor, reason=reason, machines=machines, benchmarks=benchmarks)


def _refuse_stale(row: Finding, seen: int) -> None:
    since = Transition.objects.filter(subject="finding", subject_id=row.pk, pk__gt=seen).order_by("pk")
    # What the service notes about a finding that stays where it is changes nothing of what was decided on.
    since = since.filter(~Q(actor="") | ~Q(before=F("after")))
    if steps := list(since[:_MOST_TOLD]):
        told = "; ".join(map(_told, steps))
        raise DomainError("changed", f"finding {row.pk} has changed since you saw it: {told}")


def _told(step: Transition) -> str:
    what = step.reason if step.before == step.after else f"{step.before} → {step.after} ({step.reason})"
    return f"{step.actor or 'Tidemark'} at {step.at:%H:%M} UTC: {what[:_LONGEST_TOLD]}"
