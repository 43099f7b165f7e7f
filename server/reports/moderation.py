"""What people decide about reports: released, rejected, held back, edited.

Two may have the same queue before them: each act may say up to which step of the report's life it was shown, and is
refused where somebody, or the service, went on.
"""

from django.db import transaction
from django.db.models import Max

from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, Transition
from server.core.reasons import Because
from server.detection.models import Finding
from server.reports.composer import MOST_LINES
from server.reports.composer.evidence import is_virtual
from server.reports.models import Delivery, DeliveryState, Report, ReportState
from server.reports.outbox import is_replaced, queue_delivery, still_holds
from server.reports.renewal import CHANGED, has_begun, locked, put_back, renew
from server.reports.sending.route import route

WIDEST = 78
_MOST_FAULTS = 5
_MOST_STEPS = 5
_LONGEST_STEP = 200
# Whatever else is said of virtual machines, this is.
_VIRTUAL = "not evidence"


def seen_now(report_id: int) -> int:
    """Up to which step the life of a report has come; to be asked before what is shown of it is read."""
    return Transition.objects.filter(subject="report", subject_id=report_id).aggregate(Max("id"))["id__max"] or 0


def approve_report(
    *, report_id: int, reason: str = "approved by a person", actor: str = "", seen: int | None = None
) -> Report:
    """Release a draft, or one that is held, and queue it; a mail that failed is queued again. One that is queued or
    sent stays as it is.

    DomainError `changed` where the finding says something else than the text that was read: the next try finds it new;
    and where somebody acted after `seen`. `conflict` where the finding is no claim any more.
    """
    # Not in the transaction below, which a refusal takes back.
    if renew(_as_seen(report_id, seen)) is not None:
        raise DomainError("changed", CHANGED)
    with transaction.atomic():
        report = locked(report_id)
        _refuse_stale(report, seen)
        if report.state == ReportState.SENT:
            return report
        _refuse_untrue(report)
        if report.state in (ReportState.DRAFT, ReportState.HELD):
            report.advance(ReportState.APPROVED, Because.APPROVED(reason), actor=actor, released=True)
        elif not report.released:
            report.note(Because.APPROVED(f"{actor}: {reason}" if actor else reason), released=True)
            report.released = True
        delivery = queue_delivery(report=report)
        if delivery.state == DeliveryState.FAILED:
            delivery.advance(DeliveryState.QUEUED, Because.APPROVED(reason), actor=actor, tries=0, not_before=None)
    return report


def reject_report(*, report_id: int, reason: str, actor: str = "", seen: int | None = None) -> Report:
    """Decide that an open report that nobody has begun to send is not sent. Harmless twice.

    DomainError `conflict` where it is too late for that, `changed` where somebody acted after `seen`.
    """
    with transaction.atomic():
        report = locked(report_id)
        if report.state == ReportState.REJECTED:
            return report
        _refuse_stale(report, seen)
        _refuse_begun(report)
        put_back(report, Because.REJECTED(reason), actor=actor, to=ReportState.REJECTED)
    return report


def hold_report(*, report_id: int, reason: str, actor: str, seen: int | None = None) -> Report:
    """Keep an open report, and its mail, until a person releases or approves it. Harmless twice.

    DomainError `no-reason`, `nobody`, and as `reject_report`.
    """
    _refuse_empty(report_id, reason, actor)
    with transaction.atomic():
        report = locked(report_id)
        if report.state == ReportState.HELD:
            return report
        _refuse_stale(report, seen)
        _refuse_begun(report)
        put_back(report, Because.HELD_BY_PERSON(reason.strip()), actor=actor.strip(), to=ReportState.HELD)
    return report


def release_report(*, report_id: int, reason: str, actor: str, seen: int | None = None) -> Report:
    """A report that was held is a draft again; to let it leave is another decision. DomainErrors as `hold_report`."""
    _refuse_empty(report_id, reason, actor)
    with transaction.atomic():
        report = locked(report_id)
        _refuse_stale(report, seen)
        if report.state != ReportState.HELD:
            raise DomainError("conflict", f"report {report_id} is {ReportState(report.state).label}, not held")
        report.advance(ReportState.DRAFT, Because.BY_PERSON(reason.strip()), actor=actor.strip())
    return report


def edit_report(*, report_id: int, body: str, seen: int, actor: str, reason: str) -> Report:
    """Another text for a draft, or one that is held; what the service wrote stays beside it. False words are theirs.

    DomainError `unusable-text` says what is wrong with it and where; `conflict` for a report that is released, which
    is held first; `changed`, `nobody` and `no-reason` as `hold_report`.
    """
    _refuse_empty(report_id, reason, actor)
    text = _checked(body)
    with transaction.atomic():
        report = locked(report_id)
        _refuse_stale(report, seen)
        if report.state not in (ReportState.DRAFT, ReportState.HELD):
            raise DomainError("conflict", f"report {report_id} is {ReportState(report.state).label}: hold it first")
        if report.finding is not None and is_virtual(report.finding) and _VIRTUAL not in text.lower():
            raise DomainError(
                "unusable-text", f"it tells of virtual machines, and must say that this is {_VIRTUAL.upper()}"
            )
        Report.objects.filter(pk=report.pk).update(body=text, released=False)
        report.body = text
        Transition.objects.create(
            trace=report.trace, subject="report", subject_id=report.pk, before=report.state, after=report.state,
            actor=actor.strip()[:LONGEST_ACTOR], **Because.TEXT_EDITED(f"edited: {reason.strip()}").columns(),
        )  # fmt: skip
    return report


def _checked(body: str) -> str:
    """The text as it would leave, without blanks at the ends of lines."""
    lines = [line.rstrip() for line in body.replace("\r\n", "\n").replace("\r", "\n").strip("\n").split("\n")]
    if not any(lines):
        raise DomainError("unusable-text", "the text is empty")
    faults = [f"it has {len(lines)} lines, {MOST_LINES} at most"] if len(lines) > MOST_LINES else []
    for number, line in enumerate(lines, start=1):
        if len(line) > WIDEST:
            faults.append(f"line {number} has {len(line)} columns, {WIDEST} at most")
        strange = next((place for place, sign in enumerate(line, start=1) if not " " <= sign <= "~"), 0)
        if strange:
            faults.append(f"line {number}, column {strange}: {line[strange - 1]!a} is no printable ASCII")
    if faults:
        more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        raise DomainError("unusable-text", "; ".join(faults[:_MOST_FAULTS]) + more)
    return "\n".join(lines) + "\n"


def _as_seen(report_id: int, seen: int | None) -> Report:
    with transaction.atomic():
        report = locked(report_id)
        _refuse_stale(report, seen)
    return report


def _refuse_stale(report: Report, seen: int | None) -> None:
    if seen is None:
        return
    since = Transition.objects.filter(subject="report", subject_id=report.pk, pk__gt=seen).order_by("pk")
    if steps := list(since[:_MOST_STEPS]):
        told = "; ".join(map(_told, steps))
        raise DomainError("changed", f"report {report.pk} has changed since you saw it: {told}")


def _told(step: Transition) -> str:
    what = step.reason if step.before == step.after else f"{step.before} → {step.after} ({step.reason})"
    return f"{step.actor or 'Tidemark'} at {step.at:%H:%M} UTC: {what[:_LONGEST_STEP]}"


def _refuse_empty(report_id: int, reason: str, actor: str) -> None:
    if not actor.strip():
        raise DomainError("nobody", f"report {report_id}: who decides this is not said")
    if not reason.strip():
        raise DomainError("no-reason", f"report {report_id}: why is not said")


def _refuse_begun(report: Report) -> None:
    if report.state not in Report.OPEN:
        raise DomainError("conflict", f"report {report.pk} is {ReportState(report.state).label}")
    over = Delivery.objects.filter(report=report, state=DeliveryState.FAILED).exists()
    if has_begun(report) and not over:
        raise DomainError("conflict", f"report {report.pk} is being sent, or was")


def _refuse_untrue(report: Report) -> None:
    if is_replaced(report):
        raise DomainError("superseded", "a newer version has replaced the series")
    finding = report.finding
    if finding is None:
        return
    if not still_holds(report):
        raise DomainError("conflict", f"finding {finding.pk} is {Finding.State(finding.state).label}")
    if blocked := why_blocked(finding):
        raise DomainError("virtual-stays", blocked)


def why_blocked(finding: Finding) -> str:
    """Why nothing of this finding can leave at all; empty when it can, now or later.

    Asked under locks, so no name service is: a sink that is not inside is found out as the mail is sent.
    """
    try:
        route(virtual=is_virtual(finding), look_up=False)
    except DomainError as error:
        return error.message if error.permanent else ""
    return ""
