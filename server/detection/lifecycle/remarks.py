"""What people say about a finding without measuring: another one tells of the same, or a commit that is still to come
mends it.
"""

from django.db import transaction

from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.detection.findings.checks import Name, held, set_checks, stop_trials
from server.detection.lifecycle.ledger import write_line
from server.detection.models import ChangePoint, Finding, FindingState

LONGEST_SUBJECT = 300
_ENDED = (FindingState.INVALID, FindingState.SUPERSEDED)


def mark_duplicate(finding: Finding, of: Finding, *, actor: str, reason: str) -> bool:
    """`finding` stands down for `of`, which tells of the same change. False if it stood down for that one already.

    One that stood down for another finding stands down for this one instead. DomainError `nobody`, `no-reason`, or
    `conflict` where one of them is over, both are the same, or its timelines were given to another one already.
    """
    person, why = actor.strip()[:LONGEST_ACTOR], " ".join(reason.split())
    _refuse_empty(finding, person, why)
    if of.pk == finding.pk:
        raise DomainError("conflict", f"finding {finding.pk} cannot be the same as itself")
    with transaction.atomic():
        # In the order of their numbers: two people who name each other's finding do not wait for each other.
        rows = {pk: held(pk) for pk in sorted((finding.pk, of.pk))}
        row, other = rows[finding.pk], rows[of.pk]
        if row.state == FindingState.SUPERSEDED and row.reason_code == Because.SAME_CHANGE:
            if row.same_as_id == other.pk:
                return False
            _refuse_given_away(row)
        elif FindingState.SUPERSEDED not in Finding.NEXT.get(row.state, frozenset()):
            raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}: it stays so")
        if other.state in _ENDED:
            raise DomainError(
                "conflict", f"finding {other.pk} is {FindingState(other.state).label}: it tells of nothing"
            )
        _stand_down(row, other, person, why)
    finding.refresh_from_db(fields=["state", "reason", "reason_code", "state_since", "same_as"])
    return True


def _refuse_given_away(row: Finding) -> None:
    """Steps of timelines that the one before has cannot be told from its own."""
    former = row.same_as
    if former is not None and row.branch_id is not None and row.branch_id == former.branch_id:
        raise DomainError(
            "conflict",
            f"finding {row.pk} stands down for finding {former.pk}, which has its timelines: that one stands",
        )


def _stand_down(row: Finding, other: Finding, person: str, why: str) -> None:
    """Both are held."""
    because = Because.SAME_CHANGE(f"the same as finding {other.pk}: {why}")
    former = row.same_as
    if row.state == FindingState.SUPERSEDED:
        Finding.objects.filter(pk=row.pk).update(same_as=other, news=True, **because.columns())
        write_line(row, because, person)
        if former is not None:
            write_line(former, Because.BY_PERSON(f"finding {row.pk} is the same as {other.pk}, not as this"), person)
    else:
        row.advance(FindingState.SUPERSEDED, because, actor=person, same_as=other)
    if row.branch_id is not None and row.branch_id == other.branch_id:
        ChangePoint.objects.filter(finding=row).update(finding=other)
    stop_trials(row, f"finding {row.pk} is superseded")
    write_line(other, Because.SAME_CHANGE(f"finding {row.pk} is the same as this: {why}"), person)


def promise_fix(finding: Finding, subject: str, *, actor: str) -> bool:
    """Look for a commit with this subject in the finding's branch, in what is there and in what comes; once it is found
    it is measured whether it mends the finding. False if the same subject is looked for already.

    DomainError `nobody`, `no-reason` without a subject, or `conflict` for a finding that is of no branch or is over.
    """
    person, wanted = actor.strip()[:LONGEST_ACTOR], " ".join(subject.split())[:LONGEST_SUBJECT]
    _refuse_empty(finding, person, wanted)
    with transaction.atomic():
        row = held(finding.pk)
        if row.branch_id is None:
            raise DomainError("conflict", f"finding {row.pk} is of a series: its next version is compared with it")
        if FindingState.FIXED not in Finding.NEXT.get(row.state, frozenset()):
            raise DomainError("conflict", f"finding {row.pk} is {FindingState(row.state).label}: nothing to mend")
        if row.promised_fix == wanted:
            return False
        Finding.objects.filter(pk=row.pk).update(promised_fix=wanted)
        # What was looked through before is looked through again, for this subject.
        set_checks(row, [Name.FIX_SEARCH], ())
        write_line(row, Because.BY_PERSON(f"a commit `{wanted}` is to mend it: it is looked for"), person)
        enqueue("detection.tend", "life")
    finding.promised_fix = wanted
    return True


def _refuse_empty(finding: Finding, person: str, why: str) -> None:
    if not person:
        raise DomainError("nobody", f"finding {finding.pk}: who says this is not said")
    if not why:
        raise DomainError("no-reason", f"finding {finding.pk}: nothing is said")
