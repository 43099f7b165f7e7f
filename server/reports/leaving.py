"""What would leave the site at this moment, and each mail as it would be sent. It looks and changes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import QuerySet

from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.models import Finding
from server.lab.models import Boot, Session
from server.reports.mail import build_mail, route
from server.reports.models import Delivery, DeliveryState, OptOut, Report, ReportState
from server.reports.outbox import may_be_told, sent_lately
from server.sources.models import Series

_LATER_HEADERS = ("Message-ID", "Date")
_SWITCHED_OFF = "mail is switched off at this site (TIDEMARK_MAIL_ENABLED)"


@dataclass(frozen=True)
class Letter:
    """A mail with all its headers. `encoded` names how its body is wrapped up on the way, if not as it stands.

    `opted_out` counts addresses that asked for no mail and are left out. `unnumbered`: it gets its Message-ID and date
    when it is released.
    """

    head: str
    body: str
    encoded: str
    recipients: int
    opted_out: int
    unnumbered: bool

    @property
    def widest(self) -> int:
        return max((len(line) for line in self.body.splitlines()), default=0)


@dataclass(frozen=True)
class Outgoing:
    """A report with its mail. `held` says why it does not leave at this moment, empty if it does; `note` what else."""

    report: Report
    delivery: Delivery | None
    held: str
    note: str
    letter: Letter | None

    @property
    def state_label(self) -> str:
        return str(ReportState(self.report.state).label)

    @property
    def delivery_label(self) -> str:
        return str(DeliveryState(self.delivery.state).label) if self.delivery else ""

    @property
    def switched_off(self) -> bool:
        """Whether the stop switch alone keeps it."""
        return self.held == _SWITCHED_OFF


@dataclass(frozen=True)
class Gate:
    """What holds for all mails: the stop switch, and how many left in the last hour of those that may."""

    is_open: bool
    sent: int
    cap: int


def gate() -> Gate:
    """One query."""
    return Gate(settings.MAIL_ENABLED, sent_lately(), settings.MAIL_HOURLY_CAP)


def with_mails(reports: "QuerySet[Report]") -> "QuerySet[Report]":
    long = (f"finding__{name}" for name in Finding.LONG)
    return reports.select_related("finding__series__mailing_list", "delivery").defer(*long, "finding__series__trailers")


def outgoing(reports: Sequence[Report], passing: Gate) -> list[Outgoing]:
    """Each as it stands, in the order given. Four queries."""
    virtual = _virtual(reports)
    bisected = _bisected(reports)
    addresses = {address.lower() for report in reports for address in (*report.to, *report.cc)}
    out = set(OptOut.objects.filter(address__in=addresses).values_list("address", flat=True))
    return [
        Outgoing(
            report=report,
            delivery=(delivery := getattr(report, "delivery", None)),
            held=_held(report, delivery, passing, virtual=report.pk in virtual),
            note=_note(report, bisected),
            letter=letter(report, delivery, out) if report.body else None,
        )
        for report in reports
    ]


def letter(report: Report, delivery: Delivery | None, out: Iterable[str]) -> Letter:
    """`out` are the addresses that opted out."""
    left_out = set(out)
    to = [address for address in report.to if address.lower() not in left_out]
    cc = [address for address in report.cc if address.lower() not in left_out]
    if not to:
        to, cc = cc[:1], cc[1:]
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
        body=body if plain else report.body,
        encoded="" if plain else encoding,
        recipients=len(to) + len(cc),
        opted_out=len(report.to) + len(report.cc) - len(to) - len(cc),
        unnumbered=delivery is None,
    )


def _held(report: Report, delivery: Delivery | None, passing: Gate, *, virtual: bool) -> str:
    if report.state != ReportState.APPROVED:
        return str(ReportState(report.state).label)
    if delivery is not None and delivery.state != DeliveryState.QUEUED:
        return str(DeliveryState(delivery.state).label)
    return _unwanted(report) or _stays(virtual=virtual) or _not_yet(delivery, passing)


def _unwanted(report: Report) -> str:
    """As the outbox asks before it sends."""
    series = report.finding.series
    if series is None or series.state != Series.State.APPLIED:
        return "a newer version has replaced the series"
    if series.mailing_list.moderated and not report.released:
        return "its list is moderated since: a person releases it"
    if not may_be_told(report.finding):
        return f"its finding is {Finding.State(report.finding.state).label}"
    return ""


def _stays(*, virtual: bool) -> str:
    try:
        route(virtual=virtual)
    except DomainError as error:
        return error.message
    return ""


def _not_yet(delivery: Delivery | None, passing: Gate) -> str:
    if delivery is None:
        return "the next sweep queues it"
    if delivery.report.finding.state == Finding.State.BISECTING:
        return "the revision that made it is being looked for"
    if delivery.not_before is not None and delivery.not_before > clock.now():
        return f"put off until {delivery.not_before:%H:%M:%S} UTC" + (f": {delivery.reason}" if delivery.reason else "")
    if passing.sent >= passing.cap:
        return f"the cap of {passing.cap} mails an hour is reached"
    return "" if passing.is_open else _SWITCHED_OFF


def _note(report: Report, bisected: Mapping[int, datetime]) -> str:
    at = bisected.get(report.finding_id)
    if report.state in (ReportState.DRAFT, ReportState.APPROVED) and at is not None and at > report.created_at:
        return "Its finding was bisected after this was written: it is written anew first if that tells more."
    return ""


def _virtual(reports: Sequence[Report]) -> set[int]:
    """Those that a virtual machine has a part in, as the outbox finds it at the moment of sending."""
    asked = [report for report in reports if report.state == ReportState.APPROVED]
    series = [report.finding.series_id for report in asked]
    judged = Session.objects.filter(series__in=series, comparisons__isnull=False).order_by()
    found = set(judged.filter(machine__virtual=True).values_list("series_id", flat=True))
    boots = Boot.objects.filter(session__in=judged.values("pk"), facts__virtual=True).order_by()
    found |= set(boots.values_list("session__series_id", flat=True))
    return {report.pk for report in asked if report.finding.virtual or report.finding.series_id in found}


def _bisected(reports: Sequence[Report]) -> dict[int, datetime]:
    """When each finding's search for its culprit ended last."""
    ended = Transition.objects.filter(
        subject="finding",
        subject_id__in=[report.finding_id for report in reports],
        before=Finding.State.BISECTING,
    )
    return dict(ended.order_by("at").values_list("subject_id", "at"))
