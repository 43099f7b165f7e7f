"""Writing reports, releasing them, and putting them into the outbox (the outbox itself: outbox.py)."""

import hashlib
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.db import transaction

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.detection.models import Finding
from server.reports.compose import Text, compose
from server.reports.evidence import gather, is_virtual
from server.reports.models import Delivery, DeliveryState, OptOut, Report, ReportState
from server.reports.outbox import may_be_told
from server.reports.recipients import Envelope, envelope
from server.reports.renewing import CHANGED, renew
from server.reports.smtp import route
from server.sources.models import Series

_GOOD_NEWS = "an improvement is no news for a list: a person decides whether it is told"

log = structlog.get_logger(__name__)


def compose_report(*, finding_id: int) -> Report | None:
    """The report of a finding, written now if there is none; None for a finding that nobody is told about.

    What must not be told incomplete gets a refused report with the reason. On a list that is not moderated the
    report is approved and queued at once, unless it is about an improvement, which nobody has to act on.
    """
    with transaction.atomic():
        # Whoever comes second waits here and then finds the report.
        finding = Finding.objects.select_for_update(no_key=True).filter(pk=finding_id).first()
        if finding is None:
            raise DomainError("not-found", f"there is no finding {finding_id}")
        report = Report.objects.filter(finding=finding).first()
        if report is not None:
            return report
        if finding.kind == Finding.Kind.INCONCLUSIVE or finding.state != Finding.State.CONFIRMED:
            return None
        series = finding.series
        if series is None or series.state != Series.State.APPLIED:
            return None
        try:
            text, where = compose(gather(finding)), envelope(series)
        except DomainError as error:
            log.warning("report_refused", trace=finding.trace, finding=finding.pk, reason=error.message)
            return Report.objects.create(
                finding=finding, state=ReportState.REFUSED, reason=error.message, trace=finding.trace
            ).record_creation()
        return _store(finding, text, where, moderated=series.mailing_list.moderated)


def _store(finding: Finding, text: Text, where: Envelope, *, moderated: bool) -> Report:
    held = _blocked(finding) or (_GOOD_NEWS if finding.kind == Finding.Kind.IMPROVED else "")
    report = Report.objects.create(
        finding=finding,
        state=ReportState.DRAFT,
        reason=held,
        trace=finding.trace,
        subject=text.subject,
        body=text.body,
        in_reply_to=where.in_reply_to,
        references=list(where.references),
        to=list(where.to),
        cc=list(where.cc),
    ).record_creation()
    if not held and not moderated:
        report.advance(ReportState.APPROVED, "the list is not moderated")
        queue_delivery(report=report)
    return report


def approve_report(*, report_id: int, reason: str = "approved by a person") -> Report:
    """Release a draft and queue it; a mail that failed is queued again. One that is queued or sent stays as it is.

    DomainError `conflict` where the finding says something else than the text that was read; the next try finds it new.
    """
    # Not in the transaction below, which a refusal takes back.
    with transaction.atomic():
        renewed = renew(_locked(report_id))
    if renewed:
        raise DomainError("conflict", CHANGED)
    with transaction.atomic():
        report = _locked(report_id)
        if report.state == ReportState.SENT:
            return report
        series = report.finding.series
        if series is None or series.state != Series.State.APPLIED:
            raise DomainError("superseded", "a newer version has replaced the series")
        if not may_be_told(report.finding):
            state = Finding.State(report.finding.state).label
            raise DomainError("conflict", f"finding {report.finding_id} is {state}")
        if blocked := _blocked(report.finding):
            raise DomainError("virtual-stays", blocked)
        if report.state == ReportState.DRAFT:
            report.advance(ReportState.APPROVED, reason, released=True)
        elif not report.released:
            report.released = True
            report.save(update_fields=["released"])
        delivery = queue_delivery(report=report)
        if delivery.state == DeliveryState.FAILED:
            delivery.advance(DeliveryState.QUEUED, reason, tries=0, not_before=None)
    return report


def reject_report(*, report_id: int, reason: str) -> Report:
    """Decide that a draft, or an approved report that nobody has begun to send, is not sent."""
    with transaction.atomic():
        report = _locked(report_id)
        delivery = Delivery.objects.filter(report=report).first()
        begun = delivery is not None and delivery.state in {DeliveryState.SENDING, DeliveryState.SENT}
        if report.state not in {ReportState.DRAFT, ReportState.APPROVED} or begun:
            raise DomainError("conflict", f"report {report_id} is {ReportState(report.state).label}")
        # A sender that claims the delivery at this very moment is the one process that may win instead.
        queued = delivery is not None and delivery.state == DeliveryState.QUEUED
        if delivery and queued and not delivery.advance(DeliveryState.FAILED, f"rejected: {reason}"):
            raise DomainError("conflict", f"report {report_id} is being sent")
        report.advance(ReportState.REJECTED, reason)
    return report


def queue_delivery(*, report: Report) -> Delivery:
    """The one mail of an approved report in the outbox. Its Message-ID is fixed here, for every try to come."""
    if report.state != ReportState.APPROVED:
        raise DomainError("conflict", f"report {report.pk} is {ReportState(report.state).label}")
    domain = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2]
    mark = hashlib.sha256(f"{report.pk}/{report.trace}/{report.in_reply_to}".encode()).hexdigest()[:16]
    with transaction.atomic():
        delivery, created = Delivery.objects.get_or_create(
            report=report,
            defaults={
                "message_id": f"tidemark.{report.pk}.{mark}@{domain}",
                "state": DeliveryState.QUEUED,
                "trace": report.trace,
            },
        )
        if created:
            delivery.record_creation()
        enqueue("reports.send", delivery.pk)
    return delivery


def opt_out(*, address: str) -> OptOut:
    return OptOut.objects.get_or_create(address=address.strip().lower())[0]


def _blocked(finding: Finding) -> str:
    """Why this finding cannot leave at all; empty when it can, now or later."""
    try:
        route(virtual=is_virtual(finding))
    except DomainError as error:
        return error.message if error.permanent else ""
    return ""


def _locked(report_id: int) -> Report:
    report = Report.objects.select_for_update(no_key=True).filter(pk=report_id).first()
    if report is None:
        raise DomainError("not-found", f"there is no report {report_id}")
    return report
