"""Reports written and released, and the outbox: every mail is a committed row before it is sent."""

import hashlib
from datetime import datetime, timedelta
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.reasons import NONE, Because
from server.core.tasks import enqueue, in_turn
from server.detection.models import Finding
from server.reports.composer import Text, compose, gather
from server.reports.composer.evidence import is_virtual
from server.reports.mail import (
    CHANGED,
    Envelope,
    Route,
    build_mail,
    envelope,
    opt_outs,
    readers,
    refuse_readers,
    renew,
    route,
    transmit,
)
from server.reports.models import Delivery, DeliveryState, OptOut, Report, ReportState
from server.sources.models import Series

log = structlog.get_logger(__name__)

# Longer than the time limit of the task that sends: nobody is sending any more.
STUCK_AFTER = timedelta(minutes=2)
_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(hours=1)
_MOST_TRIES = 12
# Of each kind in one sweep: a site that comes back after a week must not fill the queue faster than it is worked off.
_MOST_AT_ONCE = 100
# Of deliveries that are due.
IN_LINE = (F("not_before").asc(nulls_first=True), "pk")


def send_delivery(*, delivery_id: int) -> bool:
    """Send one queued mail; True when the mail server has accepted it. Does nothing in any other state."""
    delivery = _claim(delivery_id)
    if delivery is None:
        return False
    try:
        way, to, cc = _permission(delivery)
        transmit(build_mail(delivery, to, cc), way)
    except DomainError as error:
        _not_sent(delivery, error)
        return False
    _sent(delivery)
    return True


def wake_outbox(*, since: datetime | None = None) -> None:
    """What a lost message or a killed process left: drafts to write, mails to queue, mails to send.

    With `since` only findings count that were confirmed since then: what says nothing, or is not told, stays confirmed.
    """
    recent = Q() if since is None else Q(state_since__gte=since)
    told = Finding.objects.filter(
        recent, state=Finding.State.CONFIRMED, report=None, series__state=Series.State.APPLIED
    ).exclude(kind=Finding.Kind.INCONCLUSIVE)
    for finding_id in in_turn(told.order_by("pk").values_list("pk", flat=True), _MOST_AT_ONCE):
        enqueue("reports.compose", finding_id)
    before = Finding.objects.filter(recent, state=Finding.State.CONFIRMED, report__state=ReportState.SENT)
    for told_of in before.order_by("pk")[:_MOST_AT_ONCE]:
        # Its mail left while it was in another state.
        told_of.advance(Finding.State.REPORTED, Because.REPORTED("told before it was confirmed again"))
    stuck = Delivery.objects.filter(state=DeliveryState.SENDING, state_since__lt=clock.now() - STUCK_AFTER)
    for delivery in stuck.order_by("state_since", "pk")[:_MOST_AT_ONCE]:
        # A mail that kills its sender each time must end too.
        _not_sent(delivery, DomainError("sender-lost", "its sender was lost", permanent=False))
    # What has to wait, or was not sent, is put off: it goes behind those that were never tried.
    due = _due().order_by(*IN_LINE)
    for delivery_id in due.values_list("pk", flat=True)[:_MOST_AT_ONCE]:
        enqueue("reports.send", delivery_id)


def may_be_told(finding: Finding) -> bool:
    """Whether the claim stands: what people withdrew or accepted is no news any more, whoever approved its report."""
    return finding.state in (Finding.State.CONFIRMED, Finding.State.BISECTING, Finding.State.REPORTED)


def reports_without_delivery() -> list[Report]:
    """Some of them, for one sweep."""
    return in_turn(Report.objects.filter(state=ReportState.APPROVED, delivery=None).order_by("pk"), _MOST_AT_ONCE)


def _due() -> QuerySet[Delivery]:
    if not settings.MAIL_ENABLED:
        return Delivery.objects.none()
    return Delivery.objects.filter(Q(not_before=None) | Q(not_before__lte=clock.now()), state=DeliveryState.QUEUED)


def _claim(delivery_id: int) -> Delivery | None:
    """Take a due mail, counted against the hour's cap by one process at a time; None if it is not to be sent now."""
    with advisory_lock("reports.outbox") as free:
        if not free:
            # Another process is counting. The sweep comes back to this mail.
            return None
        delivery = _due().select_related("report__finding__series__mailing_list").filter(pk=delivery_id).first()
        if delivery is None:
            return None
        if why := _no_longer_wanted(delivery.report):
            delivery.advance(DeliveryState.FAILED, Because.NOT_WANTED(why))
            return None
        about = delivery.report.finding
        if about is not None and about.state == Finding.State.BISECTING:
            # Its ends are booted again first: what does not show again must not be told.
            _wait(delivery, "the revision that made it is being looked for")
            return None
        if sent_lately() >= settings.MAIL_HOURLY_CAP:
            _wait(delivery, f"the cap of {settings.MAIL_HOURLY_CAP} mails an hour is reached")
            return None
        return delivery if delivery.advance(DeliveryState.SENDING, tries=delivery.tries + 1) else None


def _no_longer_wanted(report: Report) -> str:
    """Why a mail that was queued must not leave any more; empty when it may."""
    if report.state != ReportState.APPROVED:
        return f"its report is {ReportState(report.state).label}"
    if why := overtaken(report):
        return why
    return "" if report.finding and report.finding.state == Finding.State.BISECTING else _stale(report)


def overtaken(report: Report) -> str:
    """Why nobody should be told any more what an approved report says; empty where it still stands."""
    series, finding = report.series, report.finding
    if series is not None and series.state != Series.State.APPLIED:
        return "a newer version has replaced the series"
    if report.is_moderated and not report.released:
        return "its list is moderated since: a person releases it"
    if finding is not None and not may_be_told(finding):
        return f"its finding is {Finding.State(finding.state).label}"
    return ""


def _stale(report: Report) -> str:
    """Why its text must not leave as it is. One that nobody had to read is written anew, and may."""
    try:
        changed = renew(report)
    except DomainError as error:
        return error.message
    return CHANGED if changed and report.is_moderated else ""


def sent_lately() -> int:
    hour_ago = clock.now() - timedelta(hours=1)
    return Delivery.objects.filter(Q(state=DeliveryState.SENT, sent_at__gt=hour_ago) | Q(state="sending")).count()


def _wait(delivery: Delivery, reason: str) -> None:
    """It stays queued, later: not a step in its life, so only the reason and the time change."""
    later = clock.now() + timedelta(minutes=1)
    Delivery.objects.filter(pk=delivery.pk, state=DeliveryState.QUEUED).update(
        not_before=later, **Because.MUST_WAIT(reason).columns()
    )
    log.info("mail_waits", trace=delivery.trace, delivery=delivery.pk, reason=reason)


def _permission(delivery: Delivery) -> tuple[Route, list[str], list[str]]:
    """The way out and who is written to; raises DomainError when this mail may not leave."""
    report = delivery.report
    way = route(virtual=report.finding is not None and is_virtual(report.finding))
    to, cc = readers(report, opt_outs([*report.to, *report.cc]))
    refuse_readers(to, cc)
    return way, to, cc


def _sent(delivery: Delivery) -> None:
    with transaction.atomic():
        report = delivery.report
        if not delivery.advance(DeliveryState.SENT, sent_at=clock.now()):
            log.error("mail_sent_by_two", trace=delivery.trace, delivery=delivery.pk)
            return
        if report.state == ReportState.APPROVED:
            report.advance(ReportState.SENT, Because.SENT(f"<{delivery.message_id}>"))
        if report.finding is not None and report.finding.state == Finding.State.CONFIRMED:
            report.finding.advance(Finding.State.REPORTED, Because.REPORTED(f"<{delivery.message_id}>"))


def _not_sent(delivery: Delivery, error: DomainError) -> None:
    if error.permanent:
        delivery.advance(DeliveryState.FAILED, Because.NOT_SENT(error.message))
    elif delivery.tries >= _MOST_TRIES:
        told = Because.GIVEN_UP(f"given up after {delivery.tries} tries: {error.message}")
        delivery.advance(DeliveryState.FAILED, told)
    else:
        wait = min(_FIRST_WAIT * 2 ** (delivery.tries - 1), _LONGEST_WAIT)
        delivery.advance(DeliveryState.QUEUED, Because.NOT_SENT(error.message), not_before=clock.now() + wait)


_GOOD_NEWS = "an improvement is no news for a list: a person decides whether it is told"


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
        report = Report.objects.filter(first_of=finding).first()
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
                finding=finding,
                first_of=finding,
                state=ReportState.REFUSED,
                trace=finding.trace,
                **Because.INCOMPLETE_REPORT(error.message).columns(),
            ).record_creation()
        return _store(finding, text, where, moderated=series.mailing_list.moderated)


def _store(finding: Finding, text: Text, where: Envelope, *, moderated: bool) -> Report:
    held = _blocked(finding) or (_GOOD_NEWS if finding.kind == Finding.Kind.IMPROVED else "")
    report = Report.objects.create(
        finding=finding,
        first_of=finding,
        state=ReportState.DRAFT,
        **(Because.HELD_BACK(held) if held else NONE).columns(),
        trace=finding.trace,
        subject=text.subject,
        body=text.body,
        composed=text.body,
        in_reply_to=where.in_reply_to,
        references=list(where.references),
        to=list(where.to),
        cc=list(where.cc),
    ).record_creation()
    if not held and not moderated:
        report.advance(ReportState.APPROVED, Because.NOT_MODERATED())
        queue_delivery(report=report)
    return report


def approve_report(*, report_id: int, reason: str = "approved by a person", actor: str = "") -> Report:
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
        series, finding = report.series, report.finding
        if series is not None and series.state != Series.State.APPLIED:
            raise DomainError("superseded", "a newer version has replaced the series")
        if finding is not None and not may_be_told(finding):
            state = Finding.State(finding.state).label
            raise DomainError("conflict", f"finding {finding.pk} is {state}")
        if finding is not None and (blocked := _blocked(finding)):
            raise DomainError("virtual-stays", blocked)
        if report.state == ReportState.DRAFT:
            report.advance(ReportState.APPROVED, Because.APPROVED(reason), actor=actor, released=True)
        elif not report.released:
            report.note(Because.APPROVED(f"{actor}: {reason}" if actor else reason), released=True)
            report.released = True
        delivery = queue_delivery(report=report)
        if delivery.state == DeliveryState.FAILED:
            delivery.advance(DeliveryState.QUEUED, Because.APPROVED(reason), actor=actor, tries=0, not_before=None)
    return report


def reject_report(*, report_id: int, reason: str, actor: str = "") -> Report:
    """Decide that a draft, or an approved report that nobody has begun to send, is not sent. Harmless twice."""
    with transaction.atomic():
        report = _locked(report_id)
        if report.state == ReportState.REJECTED:
            return report
        delivery = Delivery.objects.filter(report=report).first()
        begun = delivery is not None and delivery.state in {DeliveryState.SENDING, DeliveryState.SENT}
        if report.state not in {ReportState.DRAFT, ReportState.APPROVED} or begun:
            raise DomainError("conflict", f"report {report_id} is {ReportState(report.state).label}")
        # A sender that claims the delivery at this very moment is the one process that may win instead.
        queued = delivery is not None and delivery.state == DeliveryState.QUEUED
        told = Because.REJECTED(f"rejected: {reason}")
        if delivery and queued and not delivery.advance(DeliveryState.FAILED, told, actor=actor):
            raise DomainError("conflict", f"report {report_id} is being sent")
        report.advance(ReportState.REJECTED, Because.REJECTED(reason), actor=actor)
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
