"""What a report says now: its text as the rows have it, what it claims, and writing it anew while it has not left."""

from dataclasses import dataclass
from typing import Any

from django.db import transaction

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because, Reason
from server.detection.findings.vector import heard
from server.detection.models import BisectionState, Comparison, Finding
from server.detection.models.finding import CHANGES
from server.reports.composer import (
    Text,
    compose,
    gather,
    gather_bisection,
    gather_correction,
    gather_follow_up,
    gather_retraction,
)
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.reports.recipients import envelope_of_branch

CHANGED = Because.TEXT_CHANGED(
    "its finding says something else since it was written: the text is new, and wants to be read again"
)
# These say nothing of what a finding says by now.
_FIXED = (Report.Kind.DIGEST, Report.Kind.NOTICE, Report.Kind.ANSWER)
_IMPROVED = Finding.Kind.IMPROVED
ABOUT = ("finding__series__mailing_list", "finding__branch__tree", "answers__finding")
_RENEWED = (
    *("state", "state_since", "reason", "reason_code", "subject", "body", "composed", "told", "released"),
    *("to", "cc", "in_reply_to", "references"),
)


def written(kind: str, finding: Finding, answers: Report | None) -> Text:
    """The text of such a report about the finding, from the rows as they are.

    DomainError `incomplete-report` where that cannot be told.
    """
    if kind == Report.Kind.BISECTION:
        return compose(gather_bisection(finding))
    if answers is None:
        return compose(gather(finding))
    if kind == Report.Kind.RETRACTION:
        return compose(gather_retraction(answers, finding.reason))
    if kind == Report.Kind.CORRECTION:
        return compose(gather_correction(answers))
    return compose(gather_follow_up(finding, answers))


def claims(finding: Finding) -> dict[str, list[int]]:
    """What a report on the finding claims, to be compared with what was told: which cells moved, and what made that."""
    changed = Comparison.objects.filter(session__trial=finding.trial_id or 0, verdict__in=CHANGES)
    rows = heard(list(changed.select_related("session__machine")), finding.checks)
    ended = finding.bisections.filter(state=BisectionState.FOUND, culprit__isnull=False)
    culprits = {finding.culprit_id, *ended.values_list("culprit_id", flat=True)} - {None}
    return {
        "moved": sorted(row.pk for row in rows if row.verdict in CHANGES),
        "culprits": sorted(pk for pk in culprits if pk is not None),
    }


def needs_person(kind: str, finding: Finding, *, moderated: bool, edited: bool = False) -> bool:
    """Whether a person releases it: where somebody wants that, changed the text, or would be told news of no use."""
    first = kind in (Report.Kind.SERIES, Report.Kind.TREE)
    return moderated or edited or (first and finding.kind == _IMPROVED)


@dataclass(frozen=True)
class Renewed:
    """How far renewing a report went: its text is new, and whether a person has to read it before it leaves."""

    text: Text
    unread: bool


def other_text(report: Report) -> Text | None:
    """What its finding says now, None if that is what it was written from."""
    if report.finding is None or report.kind in _FIXED:
        return None
    text = written(report.kind, report.finding, report.answers)
    return None if (text.subject, text.body) == (report.subject, report.composed or report.body) else text


def has_begun(report: Report) -> bool:
    """Whether its mail may have reached somebody: from then on its text stays. Holds the mail in a transaction."""
    mail = Delivery.objects.select_for_update(of=("self",), no_key=True).filter(report=report).first()
    return mail is not None and (mail.in_doubt or mail.state in (DeliveryState.SENDING, DeliveryState.SENT))


def locked(report_id: int) -> Report:
    """The report as it is now, held to the end of the transaction: after its finding, before its mail."""
    rows = Report.objects.select_for_update(of=("self",), no_key=True).filter(pk=report_id)
    report = rows.select_related(*ABOUT).first()
    if report is None:
        raise DomainError("not-found", f"there is no report {report_id}")
    return report


def renew(report: Report) -> Renewed | None:
    """Write an open report anew if its finding says something else; None where nothing changed.

    A text that a person edited stays beside the new one. What was released, or edited, is a draft again; what nobody
    has to read may leave as it is now. Raises DomainError `incomplete-report` where nothing may be told any more.
    """
    with transaction.atomic():
        row = locked(report.pk)
        renewed = _renew(row) if row.state in Report.OPEN and not has_begun(row) else None
    for name in _RENEWED:
        setattr(report, name, getattr(row, name))
    return renewed


def _renew(report: Report) -> Renewed | None:
    text = other_text(report)
    if text is None or report.finding is None:
        return None
    unread = needs_person(report.kind, report.finding, moderated=report.is_moderated, edited=report.is_edited)
    fields: dict[str, Any] = {"subject": text.subject, "composed": text.body, "told": claims(report.finding)}
    if not report.is_edited:
        fields["body"] = text.body
    if report.kind == Report.Kind.TREE:
        # Another culprit is other people's.
        where = envelope_of_branch(report.finding)
        fields |= {"to": list(where.to), "cc": list(where.cc), "references": list(where.references)}
        fields["in_reply_to"] = where.in_reply_to
    if unread and report.state == ReportState.APPROVED:
        put_back(report, CHANGED, **fields)
    else:
        _rewrite(report, fields)
    return Renewed(text, unread)


def _rewrite(report: Report, fields: dict[str, Any]) -> None:
    """In the state in which it is. Why a person holds it, or nobody has to read it, stays."""
    if report.state == ReportState.DRAFT and report.reason_code != Because.HELD_BACK:
        fields |= CHANGED.columns()
    Report.objects.filter(pk=report.pk).update(**fields)
    for name, value in fields.items():
        setattr(report, name, value)
    # Whoever was shown the text before this must see that it is another one.
    Transition.objects.create(
        trace=report.trace, subject="report", subject_id=report.pk, before=report.state, after=report.state,
        **CHANGED.columns(),
    )  # fmt: skip


def put_back(report: Report, reason: Reason, *, actor: str = "", to: str = ReportState.DRAFT, **fields: Any) -> bool:
    """An open report becomes a draft, or is held, or rejected; its mail, if one waits, is not sent.

    Runs in the caller's transaction. DomainError `changed` where somebody began to send it at this very moment.
    """
    delivery = Delivery.objects.filter(report=report).first()
    waits = delivery is not None and delivery.state == DeliveryState.QUEUED
    # A sender that claims the delivery now is the one process that may win instead.
    if delivery and waits and not delivery.advance(DeliveryState.FAILED, reason, actor=actor):
        raise DomainError("changed", f"report {report.pk} is being sent")
    return report.advance(to, reason, actor=actor, **{"released": False} | fields)
