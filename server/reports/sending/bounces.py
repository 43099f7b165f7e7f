"""Which addresses do not take our mails: what servers answered or wrote back, and which addresses rest for it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Lower

from server.core import clock
from server.reports.models import Bounce, Delivery, RestingAddress, ReturnedMail
from server.reports.sending.headers import SealedMail, is_envelope_sender
from server.reports.sending.readers import bare
from server.reports.sending.returned_mail import Notice, Undelivered, read_notice
from server.reports.sending.wire import is_permanent
from server.sources.messages.mailboxes import CATCH_ALL
from server.sources.models import MailingList, Message

log = structlog.get_logger(__name__)

# The address itself is said to be none. Other refusals may be a full mailbox, a filter that takes us for spam, or a
# server on a bad day: those count when they come on two days.
_NO_SUCH_ADDRESS = frozenset({"5.1.1", "5.1.10"})
_DAYS = 2
_READ_AT_ONCE = 200
# The sweep looks so far back.
_READ_WITHIN = timedelta(days=14)
_REFUSES_FOR = timedelta(days=7)


def note_refusals(delivery: Delivery, mail: SealedMail) -> list[str]:
    """Write down who was refused for ever while others were taken; returns who is to be tried again."""
    again = []
    for recipient, (code, said) in mail.refused.items():
        if not is_permanent(code):
            again.append(recipient)
            continue
        status = next(iter(said.split()), "")
        told = status if status.startswith(("4.", "5.")) and status.replace(".", "").isdigit() else ""
        _note(delivery, Undelivered(bare(recipient), "", True, told[:11], f"{code} {said}"), None)
    return again


def note_given_up(delivery: Delivery, recipients: Iterable[str]) -> None:
    for recipient in recipients:
        _note(delivery, Undelivered(bare(recipient), "", True, "4.4.7", "put off for days, and given up"), None)


def read_returned_mails() -> int:
    """What came to this site's own addresses of late and was not read yet, newest first; how many were read."""
    own = {bare(settings.MAIL_FROM), bare(settings.MAIL_REPLY_TO), settings.MAIL_BOUNCES.lower()} - {""}
    named = MailingList.objects.annotate(lower=Lower("address")).filter(Q(name=CATCH_ALL) | Q(lower__in=own))
    lists = list(named.values_list("pk", flat=True))
    waiting = Message.objects.filter(
        mailing_list__in=lists, returned=None, received_at__gt=clock.now() - _READ_WITHIN
    ).exclude(kind=Message.Kind.DELETED)
    found = list(waiting.order_by("-pk").only("pk", "raw")[:_READ_AT_ONCE])
    for message in found:
        _take(message)
    return len(found)


def _take(message: Message) -> None:
    notice = read_notice(bytes(message.raw))
    with transaction.atomic():
        row, created = ReturnedMail.objects.get_or_create(
            message=message, defaults={"meaning": ReturnedMail.Meaning.OTHER}
        )
        if not created:
            return
        row.meaning = _meaning(notice, message)
        row.save(update_fields=["meaning"])
    log.info("returned_mail_read", message=message.pk, meaning=row.meaning)


def _meaning(notice: Notice, message: Message) -> str:
    if not notice.failures:
        return ReturnedMail.Meaning.AUTOMATIC if notice.automatic else ReturnedMail.Meaning.OTHER
    delivery = _delivery_of(notice)
    told = _known(delivery, notice.failures) if delivery else []
    if delivery is None or not told:
        return ReturnedMail.Meaning.NOT_OURS
    over = [failure for failure in told if failure.given_up]
    for failure in over:
        _note(delivery, failure, message)
    return ReturnedMail.Meaning.BOUNCE if over else ReturnedMail.Meaning.DELAY


def _delivery_of(notice: Notice) -> Delivery | None:
    """The delivery that a notice is about, if it proves that it comes from where the mail went.

    Message-IDs can be read in archives. Where bounces have an address for each delivery, that address is asked for:
    only who got the mail knows it.
    """
    rows = Delivery.objects.select_related("report")
    if not settings.MAIL_BOUNCES:
        return rows.filter(message_id__in=notice.message_ids).exclude(tries=0).first()
    local, _, domain = settings.MAIL_BOUNCES.lower().rpartition("@")
    for address in notice.addressed:
        number = address.removeprefix(f"{local}+").partition(".")[0]
        if address.startswith(f"{local}+") and address.endswith(f"@{domain}") and number.isdigit():
            delivery = rows.filter(pk=int(number[:18])).first()
            if delivery and is_envelope_sender(address, delivery):
                return delivery
    return None


def _known(delivery: Delivery, failures: Iterable[Undelivered]) -> list[Undelivered]:
    """Those of somebody whom the delivery was written to, under the address that we wrote to."""
    written = {bare(one) for one in (*delivery.report.to, *delivery.report.cc)}
    named = ((failure, next((a for a in (failure.address, failure.also) if a in written), "")) for failure in failures)
    return [Undelivered(to, "", one.given_up, one.status, one.said) for one, to in named if to]


def _note(delivery: Delivery, failure: Undelivered, message: Message | None) -> None:
    told = {"permanent": failure.given_up, "status": failure.status, "said": failure.said}
    with transaction.atomic():
        _, created = Bounce.objects.get_or_create(
            delivery=delivery, address=failure.address, message=message, defaults=told
        )
        if created:
            log.warning("mail_bounced", trace=delivery.trace, delivery=delivery.pk, status=failure.status)
            _rest(failure.address)


def _rest(address: str) -> None:
    """Write no more to an address that is gone. A list never rests: that it refuses us is for a person to put right."""
    if _lists_among([address]):
        return
    row = RestingAddress.objects.select_for_update().filter(address=address).first()
    if row is not None and row.lifted_at is None:
        return
    since = row.lifted_at if row and row.lifted_at else datetime.min.replace(tzinfo=UTC)
    told = list(Bounce.objects.filter(address=address, permanent=True, at__gt=since).values_list("status", "at"))
    gone = sorted({status for status, _ in told} & _NO_SUCH_ADDRESS)
    days = {at.date() for _, at in told}
    if not gone and len(days) < _DAYS:
        return
    last = told[0][0] or "no status"
    reason = f"there is no such address ({gone[0]})" if gone else f"mails came back on {len(days)} days ({last})"
    told_of_it = {"since": clock.now(), "lifted_at": None, "reason": reason}
    RestingAddress.objects.update_or_create(address=address, defaults=told_of_it)


def _lists_among(addresses: Collection[str]) -> set[str]:
    named = MailingList.objects.exclude(address="").annotate(lower=Lower("address"))
    return set(named.filter(lower__in=addresses).values_list("lower", flat=True))


@dataclass(frozen=True)
class RefusingList:
    """A list that did not take a report of late."""

    address: str
    status: str
    at: datetime
    report: int


def refusals_of_lists() -> QuerySet[Bounce, tuple[str, str, datetime, int]]:
    """What `refusing_lists` is told from: mails that a list's server sent back within a week, the newest last."""
    known = MailingList.objects.filter(address__iexact=OuterRef("address"))
    late = Bounce.objects.filter(Exists(known), permanent=True, at__gt=clock.now() - _REFUSES_FOR)
    return late.order_by("at").values_list("address", "status", "at", "delivery__report")


def refusing_lists(rows: Iterable[tuple[Any, ...]]) -> list[RefusingList]:
    """Each list whose server sent a report back lately, with the newest one; no query."""
    newest = {address: RefusingList(address, status, at, report) for address, status, at, report in rows}
    return [newest[address] for address in sorted(newest)]


def returns(deliveries: Collection[int]) -> dict[int, list[str]]:
    """What came back of each delivery, in words for everybody: lists by name, people only counted. Two queries."""
    rows = list(
        Bounce.objects.filter(delivery__in=deliveries).order_by("pk").values_list("delivery", "address", "status")
    )
    lists = _lists_among({address for _, address, _ in rows}) if rows else set()
    told: dict[int, list[str]] = {}
    for delivery in dict.fromkeys(number for number, _, _ in rows):
        mine = {address: status for number, address, status in rows if number == delivery}
        told[delivery] = [f"{one} refused it{_as_told(mine[one])}" for one in mine if one in lists]
        if people := [one for one in mine if one not in lists]:
            told[delivery].append(f"it came back from {len(people)} address{'es' if len(people) > 1 else ''}")
    return told


def _as_told(status: str) -> str:
    return f" ({status})" if status else ""
