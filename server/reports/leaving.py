"""What would leave the site at this moment, and each mail as it would be sent. It looks and changes nothing."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.conf import settings
from django.db.models import F, Q, QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.detection.models import Finding
from server.lab.models import Boot, Session
from server.reports.models import Delivery, DeliveryState, MailStop, Report, ReportState
from server.reports.outbox import is_being_bisected, overtaken, sent_lately
from server.reports.renewal import ABOUT, CHANGED, needs_person, other_text
from server.reports.sending.bounces import returns
from server.reports.sending.headers import build_mail
from server.reports.sending.readers import opt_outs, readers, refuse_readers
from server.reports.sending.route import route

_LATER_HEADERS = ("Message-ID", "Date")
_READERS = re.compile(r"^(To|Cc): .*(?:\n[ \t].*)*", re.MULTILINE)
# To write a mail anew takes a look at all that its finding says.
_MOST_COMPOSED = 3
_MOST_STOPS = 5
_SWITCHED_OFF, _STOPPED = "mail is switched off at this site", "a person stopped all mails and calls"


@dataclass(frozen=True)
class Letter:
    """A mail with all its headers. `encoded` names how its body is wrapped up on the way, if not as it stands.

    `public_head` counts readers instead of naming them: beside the list of a series' people, the names would tell who
    opted out.
    `opted_out` counts addresses that asked for no mail and are left out. `unnumbered`: it gets its Message-ID and date
    when it is released.
    """

    head: str
    public_head: str
    body: str
    encoded: str
    recipients: int
    opted_out: int
    unnumbered: bool

    @property
    def widest(self) -> int:
        """Of the lines that can be broken: an address cannot."""
        return max((len(line) for line in self.body.splitlines() if "://" not in line), default=0)


@dataclass(frozen=True)
class Outgoing:
    """A report with its mail. `held` says why it does not leave at this moment, empty if it does; `note` what else.

    `returned` tells what came back of it.
    """

    report: Report
    delivery: Delivery | None
    held: str
    note: str
    letter: Letter | None
    returned: tuple[str, ...] = ()

    @property
    def state_label(self) -> str:
        return str(ReportState(self.report.state).label)

    @property
    def kind_label(self) -> str:
        return str(Report.Kind(self.report.kind).label)

    @property
    def place(self) -> str:
        """Where it goes: the list of its series, a tree, or one who asked for it."""
        if self.report.kind in Report.WANTED:
            return "one who asked for it"
        series, finding = self.report.series, self.report.finding
        if series is not None:
            return series.mailing_list.name
        return finding.branch.tree.name if finding and finding.branch else ""

    @property
    def delivery_label(self) -> str:
        return str(DeliveryState(self.delivery.state).label) if self.delivery else ""

    @property
    def switched_off(self) -> bool:
        """Whether a switch alone keeps it, the operator's or a person's."""
        return self.held in (_SWITCHED_OFF, _STOPPED)


@dataclass(frozen=True)
class Gate:
    """What holds for all mails: whether the site sends any, who stopped it, and how many of an hour's have left."""

    is_open: bool
    sent: int
    cap: int
    stops: tuple[MailStop, ...] = ()

    @property
    def stop(self) -> MailStop | None:
        """The one that holds; no other began after it."""
        return next((stop for stop in self.stops if stop.ended_at is None), None)

    @property
    def room(self) -> int:
        return max(0, self.cap - self.sent)


def gate() -> Gate:
    """Two queries."""
    stops = tuple(MailStop.objects.all()[:_MOST_STOPS])
    is_open = settings.MAIL_ENABLED and all(stop.ended_at for stop in stops)
    return Gate(is_open, sent_lately(), settings.MAIL_HOURLY_CAP, stops)


def with_mails(reports: "QuerySet[Report]") -> "QuerySet[Report]":
    long = (f"finding__{name}" for name in Finding.LONG)
    return reports.select_related(*ABOUT, "delivery").defer(*long, "finding__series__trailers")


def in_line(reports: "QuerySet[Report]") -> "QuerySet[Report]":
    """Those that are released and did not fail, in the order in which the outbox takes them."""
    waiting = Q(delivery=None) | Q(delivery__state__in=[DeliveryState.QUEUED, DeliveryState.SENDING])
    first = (F("delivery__not_before").asc(nulls_first=True), F("delivery__pk").asc(nulls_last=True), "pk")
    return reports.filter(waiting, state=ReportState.APPROVED).order_by(*first)


def outgoing(reports: Sequence[Report], passing: Gate) -> list[Outgoing]:
    """Each as it stands, in the order given. Seven queries, and those of a few texts that may have changed.

    What leaves takes its part of what the hour has left; those behind wait.
    """
    virtual = _virtual(reports)
    out = opt_outs(address for report in reports for address in (*report.to, *report.cc))
    deliveries = {report.pk: found.pk for report in reports if (found := getattr(report, "delivery", None))}
    returned = returns(list(deliveries.values()))
    rows: list[Outgoing] = []
    room, composed = passing.room, 0
    for report in reports:
        row = Outgoing(
            report=report,
            delivery=(delivery := getattr(report, "delivery", None)),
            held=_held(report, delivery, passing, out, virtual=report.pk in virtual),
            note=_note(report),
            letter=letter(report, delivery, out) if report.body else None,
            returned=tuple(returned.get(deliveries.get(report.pk, 0), ())),
        )
        if _leaves(row) and row.note:
            row = replace(row, held=_stale(report, composed) or row.held)
            composed += 1
        if _leaves(row):
            room -= 1
            if room < 0:
                row = replace(row, held=f"those before it fill the cap of {passing.cap} mails an hour")
        rows.append(row)
    return rows


def _leaves(row: Outgoing) -> bool:
    return not row.held or row.switched_off


def _stale(report: Report, composed: int) -> str:
    """As the outbox finds it, without writing it anew."""
    if composed >= _MOST_COMPOSED:
        return "its finding has changed since: whether its text still stands is seen when it is its turn"
    try:
        text = other_text(report)
    except DomainError as error:
        return error.message
    if text is None or report.finding is None:
        return ""
    unread = needs_person(report.kind, report.finding, moderated=report.is_moderated, edited=report.is_edited)
    return CHANGED if unread else ""


def mail_readers(report: Report, delivery: Delivery | None, out: Mapping[str, datetime]) -> tuple[list[str], list[str]]:
    """To and Cc as they leave, or left: who opted out later was written to. `out` says since when."""
    sent_at = delivery.sent_at if delivery else None
    return readers(report, {address for address, since in out.items() if sent_at is None or since <= sent_at})


def in_public(addresses: Collection[str], report: Report) -> str:
    """The list, and how many others."""
    series = report.series
    named = {series.mailing_list.address.lower()} if series else set()
    lists = [address for address in addresses if address.lower() in named]
    others = len(addresses) - len(lists)
    counted = [f"{others} {'other ' if lists else ''}{'address' if others == 1 else 'addresses'}"] if others else []
    return " and ".join([*lists, *counted])


def letter(report: Report, delivery: Delivery | None, out: Mapping[str, datetime]) -> Letter:
    """`out` are the addresses that opted out, and when."""
    to, cc = mail_readers(report, delivery, out)
    shown = {"To": in_public(to, report), "Cc": in_public(cc, report)}
    row = delivery or Delivery(report=report, message_id="later", created_at=clock.now())
    message = build_mail(row, to, cc).message()
    if delivery is None:
        for name in _LATER_HEADERS:
            del message[name]
    head, _, body = message.as_bytes().decode("utf-8", "replace").partition("\n\n")
    encoding = str(message.get("Content-Transfer-Encoding", "7bit"))
    plain = encoding.lower() in ("7bit", "8bit")
    return Letter(
        head=head,
        public_head=_READERS.sub(lambda found: f"{found[1]}: {shown[found[1]]}", head),
        body=body if plain else report.body,
        encoded="" if plain else encoding,
        recipients=len(to) + len(cc),
        opted_out=len(report.to) + len(report.cc) - len(to) - len(cc),
        unnumbered=delivery is None,
    )


def _held(report: Report, delivery: Delivery | None, passing: Gate, out: Collection[str], *, virtual: bool) -> str:
    if report.state != ReportState.APPROVED:
        return str(ReportState(report.state).label)
    if delivery is not None and delivery.state != DeliveryState.QUEUED:
        return str(DeliveryState(delivery.state).label)
    return overtaken(report) or _not_allowed(report, out, virtual=virtual) or _not_yet(delivery, passing)


def _not_allowed(report: Report, out: Collection[str], *, virtual: bool) -> str:
    try:
        route(virtual=virtual)
        refuse_readers(*readers(report, out))
    except DomainError as error:
        return error.message
    return ""


def _not_yet(delivery: Delivery | None, passing: Gate) -> str:
    if delivery is None:
        return "the next sweep queues it"
    if is_being_bisected(delivery.report):
        return "the revision that made it is being looked for"
    if delivery.not_before is not None and delivery.not_before > clock.now():
        return f"put off until {delivery.not_before:%H:%M:%S} UTC" + (f": {delivery.reason}" if delivery.reason else "")
    if passing.sent >= passing.cap:
        return f"the cap of {passing.cap} mails an hour is reached"
    if passing.is_open:
        return ""
    return _STOPPED if passing.stop else _SWITCHED_OFF


def _note(report: Report) -> str:
    if report.state in Report.OPEN and report.kind not in Report.WANTED and report.finding and report.finding.news:
        return "Its finding has changed since this was written: it is written anew first if that tells more."
    return ""


def _virtual(reports: Sequence[Report]) -> set[int]:
    """Those that a virtual machine has a part in, as the outbox finds it at the moment of sending."""
    asked = [report for report in reports if report.state == ReportState.APPROVED]
    series = [report.finding.series_id for report in asked if report.finding]
    judged = Session.objects.filter(series__in=series, comparisons__isnull=False).order_by()
    found = set(judged.filter(machine__virtual=True).values_list("series_id", flat=True))
    boots = Boot.objects.filter(session__in=judged.values("pk"), facts__virtual=True).order_by()
    found |= set(boots.values_list("session__series_id", flat=True))
    return {report.pk for report in asked if (of := report.finding) and (of.virtual or of.series_id in found)}
