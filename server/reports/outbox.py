"""The outbox: every mail is a committed row before it is sent, and is asked once more whether it may leave."""

import hashlib
import random
from datetime import timedelta
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue, in_turn
from server.detection.models import Finding
from server.reports.composer.evidence import is_virtual
from server.reports.models import Delivery, DeliveryState, OptOut, Report, ReportState
from server.reports.renewal import ABOUT, CHANGED, locked, renew
from server.reports.sending.bounces import note_given_up, note_refusals
from server.reports.sending.headers import SealedMail, build_mail
from server.reports.sending.readers import bare, opt_outs, readers, refuse_readers
from server.reports.sending.route import Route, route
from server.reports.sending.wire import transmit
from server.reports.stop_switch import may_leave
from server.sources.models import Series

log = structlog.get_logger(__name__)

# Longer than the time limit of the task that sends: nobody is sending any more.
STUCK_AFTER = timedelta(minutes=2)
_FIRST_WAIT = timedelta(seconds=30)
_LONGEST_WAIT = timedelta(hours=1)
# A mail that kills its sender each time must end; one that only finds no server is worth as many days as others give.
_MOST_TRIES = 12
# The server may have the mail all the same.
_LOST = "sender-lost"
_NO_ANSWER = (_LOST, "no-answer")
_LONGEST_LIFE = timedelta(days=5)
# Of each kind in one sweep: a site that comes back after a week must not fill the queue faster than it is worked off.
_MOST_AT_ONCE = 100
_ABOUT = ("report", *(f"report__{name}" for name in ABOUT))
# With it ends the key of a notice that tells of a claim.
CLAIMED = "confirmed"
# Of deliveries that are due.
IN_LINE = (F("not_before").asc(nulls_first=True), "pk")


def send_delivery(*, delivery_id: int) -> bool:
    """Send one queued mail; True when the mail server has accepted it. Does nothing in any other state."""
    delivery = _claim(delivery_id)
    if delivery is None:
        return False
    mail: SealedMail | None = None
    try:
        way, to, cc = _permission(delivery)
        mail = build_mail(delivery, to, cc).sealed(delivery)
        transmit(mail, way)
    except DomainError as error:
        if error.permanent and mail is not None and delivery.report.kind in Report.WANTED:
            # One who asked for mails and does not take them; of a thread's readers, a relay that refuses all may lie.
            note_refusals(delivery, mail)
        _not_sent(delivery, error)
        return False
    _sent(delivery, mail)
    return True


def send_rest(*, delivery_id: int) -> bool:
    """Try again whom the mail server put off while it took the mail for others; True when nobody is left.

    The same mail to fewer people: it counts for no cap, and nothing overtakes it that is in the thread already.
    """
    delivery = _claim_rest(delivery_id)
    if delivery is None:
        return False
    if delivery.sent_at is None or clock.now() - delivery.sent_at > _LONGEST_LIFE:
        note_given_up(delivery, delivery.put_off)
        Delivery.objects.filter(pk=delivery.pk).update(put_off=[], not_before=None)
        return True
    wanted = {bare(one) for one in delivery.put_off}
    left: list[str] = []
    mail = None
    try:
        way, to, cc = _permission(delivery)
        mail = build_mail(delivery, to, cc).sealed(delivery)
        mail.only = [one for one in (*to, *cc) if bare(one) in wanted]
        if mail.only:
            transmit(mail, way)
    except DomainError as error:
        left = [] if error.permanent else list(delivery.put_off)
    if mail is not None and not left:
        left = note_refusals(delivery, mail)
    Delivery.objects.filter(pk=delivery.pk).update(put_off=left, not_before=delivery.not_before if left else None)
    return not left


def _claim_rest(delivery_id: int) -> Delivery | None:
    if not may_leave():
        return None
    late = Delivery.objects.filter(pk=delivery_id, state=DeliveryState.SENT, not_before__lte=clock.now())
    delivery = late.exclude(put_off=[]).select_related(*_ABOUT).first()
    if delivery is None:
        return None
    # Whoever changes it first has it, until the next try is due.
    then = clock.now() + max(_pause(delivery.tries), STUCK_AFTER)
    mine = Delivery.objects.filter(pk=delivery.pk, tries=delivery.tries, not_before=delivery.not_before)
    if not mine.update(tries=delivery.tries + 1, not_before=then):
        return None
    delivery.not_before = then
    return delivery


def wake_outbox() -> None:
    """What a lost message or a killed process left: news of findings to tell, mails to queue, mails to send."""
    for finding_id in in_turn(
        Finding.objects.filter(news=True).order_by("pk").values_list("pk", flat=True), _MOST_AT_ONCE
    ):
        enqueue("reports.compose", finding_id)
    stuck = Delivery.objects.filter(state=DeliveryState.SENDING, state_since__lt=clock.now() - STUCK_AFTER)
    for delivery in stuck.order_by("state_since", "pk")[:_MOST_AT_ONCE]:
        # A mail that kills its sender each time must end too.
        _not_sent(delivery, DomainError(_LOST, "its sender was lost", permanent=False))
    # What has to wait, or was not sent, is put off: it goes behind those that were never tried.
    due = _due().order_by(*IN_LINE)
    for delivery_id in due.values_list("pk", flat=True)[:_MOST_AT_ONCE]:
        enqueue("reports.send", delivery_id)
    rest = Delivery.objects.filter(state=DeliveryState.SENT, not_before__lte=clock.now()).exclude(put_off=[])
    for delivery_id in rest.order_by(*IN_LINE).values_list("pk", flat=True)[:_MOST_AT_ONCE]:
        enqueue("reports.send_rest", delivery_id)


def may_be_told(finding: Finding) -> bool:
    """Whether the claim stands: what people withdrew or accepted is no news any more, whoever approved its report."""
    return finding.state in (Finding.State.CONFIRMED, Finding.State.BISECTING, Finding.State.REPORTED)


# Of a finding that moves on, these are told all the same: they put right what was told before.
_AMENDS = (Report.Kind.RETRACTION, Report.Kind.CORRECTION)


def still_holds(report: Report) -> bool:
    """Whether what it says may be told of its finding as that is now."""
    finding = report.finding
    if finding is None:
        return True
    if report.kind == Report.Kind.NOTICE and report.key.endswith(f":{CLAIMED}"):
        return finding.state not in (Finding.State.INVALID, Finding.State.SUPERSEDED)
    if report.kind in Report.WANTED:
        return True
    if report.kind == Report.Kind.RETRACTION:
        return finding.state == Finding.State.INVALID
    return finding.state in Finding.STANDING if report.kind == Report.Kind.CORRECTION else may_be_told(finding)


def reports_without_delivery() -> list[Report]:
    """Some of them, for one sweep."""
    return in_turn(Report.objects.filter(state=ReportState.APPROVED, delivery=None).order_by("pk"), _MOST_AT_ONCE)


def _due() -> QuerySet[Delivery]:
    if not may_leave():
        return Delivery.objects.none()
    return Delivery.objects.filter(Q(not_before=None) | Q(not_before__lte=clock.now()), state=DeliveryState.QUEUED)


def _claim(delivery_id: int) -> Delivery | None:
    """Take a due mail, counted against the hour's cap by one process at a time; None if it is not to be sent now."""
    with advisory_lock("reports.outbox") as free:
        # Another process is counting otherwise. The sweep comes back to this mail.
        delivery = _due().select_related(*_ABOUT).filter(pk=delivery_id).first() if free else None
        if delivery is None or not _may_leave_now(delivery):
            return None
        if not delivery.advance(DeliveryState.SENDING, tries=delivery.tries + 1):
            return None
        # From here on its text stays: that which is there now.
        delivery.report = Report.objects.select_related(*ABOUT).get(pk=delivery.report_id)
        return delivery


def _may_leave_now(delivery: Delivery) -> bool:
    """Whether it may; else it waits, or has failed."""
    try:
        why = _no_longer_wanted(delivery.report)
    except DomainError as error:
        _wait(delivery, error.message)
        return False
    if why:
        _fail(delivery, Because.NOT_WANTED(why))
    elif is_being_bisected(delivery.report):
        # Its ends are booted again first: what does not show again must not be told.
        _wait(delivery, "the revision that made it is being looked for")
    elif sent_lately() >= settings.MAIL_HOURLY_CAP:
        _wait(delivery, f"the cap of {settings.MAIL_HOURLY_CAP} mails an hour is reached")
    else:
        return True
    return False


def is_being_bisected(report: Report) -> bool:
    about = report.finding
    return about is not None and about.state == Finding.State.BISECTING and report.kind not in Report.WANTED


def _no_longer_wanted(report: Report) -> str:
    """Why a mail that was queued must not leave any more; empty when it may. DomainError where that is not known."""
    if report.state != ReportState.APPROVED:
        return f"its report is {ReportState(report.state).label}"
    if why := overtaken(report):
        return why
    return "" if is_being_bisected(report) else _stale(report)


def overtaken(report: Report) -> str:
    """Why nobody should be told any more what an approved report says; empty where it still stands."""
    series, finding = report.series, report.finding
    if is_replaced(report):
        return "a newer version has replaced the series"
    if report.is_moderated and not report.released:
        return f"its {'list' if series else 'tree'} is moderated since: a person releases it"
    if finding is not None and not still_holds(report):
        return f"its finding is {Finding.State(finding.state).label}"
    return ""


def is_replaced(report: Report) -> bool:
    """Whether it tells of a version that is none any more; what was told of one is put right all the same."""
    series = report.series
    if series is None or report.kind in (*_AMENDS, *Report.WANTED):
        return False
    return series.state != Series.State.APPLIED


def _stale(report: Report) -> str:
    """Why its text must not leave as it is. One that nobody has to read is written anew, and may."""
    try:
        renewed = renew(report)
    except DomainError as error:
        if not error.permanent:
            raise
        return error.message
    return CHANGED if renewed is not None and renewed.unread else ""


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


def _sent(delivery: Delivery, mail: SealedMail) -> None:
    with transaction.atomic():
        about = delivery.report.finding_id
        # Held in the order in which whoever tells its news holds them.
        finding = Finding.objects.select_for_update(no_key=True).filter(pk=about).first() if about else None
        report = locked(delivery.report_id)
        again = note_refusals(delivery, mail)
        later = clock.now() + _pause(delivery.tries) if again else None
        if not delivery.advance(DeliveryState.SENT, sent_at=clock.now(), put_off=again, not_before=later):
            log.error("mail_sent_by_two", trace=delivery.trace, delivery=delivery.pk)
            return
        if report.state == ReportState.APPROVED:
            report.advance(ReportState.SENT, Because.SENT(f"<{delivery.message_id}>"))
        if finding is None or report.kind in Report.WANTED:
            return
        if report.kind in Report.FIRST and finding.state == Finding.State.CONFIRMED:
            finding.advance(Finding.State.REPORTED, Because.REPORTED(f"<{delivery.message_id}>"))
        # What became of it while it was being sent is told now.
        Finding.objects.filter(pk=finding.pk).update(news=True)


def _fail(delivery: Delivery, reason: Reason) -> None:
    delivery.advance(DeliveryState.FAILED, reason)
    if delivery.in_doubt:
        # What may have arrived may have to be taken back.
        Finding.objects.filter(reports=delivery.report_id).update(news=True)


def _not_sent(delivery: Delivery, error: DomainError) -> None:
    if error.code in _NO_ANSWER:
        delivery.in_doubt = True
        Delivery.objects.filter(pk=delivery.pk).update(in_doubt=True)
    if error.permanent:
        _fail(delivery, Because.NOT_SENT(error.message))
    elif delivery.tries >= _MOST_TRIES and (error.code == _LOST or clock.now() - delivery.created_at > _LONGEST_LIFE):
        _fail(delivery, Because.GIVEN_UP(f"given up after {delivery.tries} tries: {error.message}"))
    else:
        later = clock.now() + _pause(delivery.tries)
        delivery.advance(DeliveryState.QUEUED, Because.NOT_SENT(error.message), not_before=later)


def _pause(tries: int) -> timedelta:
    """Twice as long after each try, up to an hour; not to the second, so that what failed together parts."""
    longest: timedelta = min(_FIRST_WAIT * 2 ** min(max(tries - 1, 0), 16), _LONGEST_WAIT)
    return longest * random.uniform(0.75, 1.0)  # noqa: S311 (nobody gains by guessing it)


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
