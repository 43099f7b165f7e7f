"""The mail of a report: its text, who gets it, and the way out."""

import ipaddress
import re
import smtplib
import socket
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email import message_from_bytes, policy
from email.utils import format_datetime, getaddresses, parseaddr
from typing import Any

import structlog
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage, get_connection
from django.core.validators import EmailValidator
from django.template.loader import render_to_string

from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because
from server.detection.models import Finding
from server.lab.models import Machine
from server.reports.evidence import (
    Evidence,
    MachineFigures,
    column_names,
    coverage_lines,
    coverage_table,
    gather,
    moved_details,
    moved_table,
    plain,
    root_message,
    wrap,
)
from server.reports.models import Delivery, OptOut, Report, ReportState
from server.sources.models import Open, Series

log = structlog.get_logger(__name__)

MOST_LINES = 60
_MOST_SUBJECT = 200
_NO_CHANGE = "No regression found."
_MARK = re.compile(r"^(re|aw|fwd?)\s*:\s*", re.IGNORECASE)


@dataclass(frozen=True)
class RowLimits:
    """Most lines of each part."""

    verdict: int
    culprit: int
    explanation: int
    table: int
    coverage: int
    gaps: int
    machines: int


# The first that leaves room for the numbers of a few cells is taken.
_LIMITS = (
    RowLimits(verdict=8, culprit=10, explanation=6, table=18, coverage=12, gaps=6, machines=12),
    RowLimits(verdict=6, culprit=6, explanation=5, table=11, coverage=6, gaps=4, machines=6),
    RowLimits(verdict=5, culprit=3, explanation=4, table=8, coverage=3, gaps=3, machines=4),
)
_FEW_DETAILS = 7


@dataclass(frozen=True)
class Text:
    subject: str
    body: str


def compose(evidence: Evidence) -> Text:
    """The mail about a finding. Whether it may be told at all was checked when the evidence was gathered."""
    return Text(subject=reply_subject(evidence), body=_body(evidence))


def reply_subject(evidence: Evidence) -> str:
    """`Re:` and the subject of the mail that is answered, on one line of ASCII."""
    subject = plain(evidence.root.subject if evidence.root else "") or plain(str(evidence.series))
    while _MARK.match(subject):
        subject = _MARK.sub("", subject)
    return f"Re: {subject}"[:_MOST_SUBJECT].rstrip()


def _body(evidence: Evidence) -> str:
    if evidence.finding.kind == Finding.Kind.UNCHANGED:
        return "\n".join(_fitting(evidence, few=0)[1]) + "\n"
    sections, lines = _fitting(evidence, few=_FEW_DETAILS)
    # The only part whose length is free: two lines for each cell that moved, as long as the mail has room.
    details = moved_details(evidence.moved, column_names(evidence.comparisons), MOST_LINES - len(lines) - 2)
    return "\n".join(_render(sections | {"details": details})) + "\n"


def _fitting(evidence: Evidence, *, few: int) -> tuple[dict[str, object], list[str]]:
    """All parts but the details, and their lines, so that `few` lines are left."""
    for limits in _LIMITS:
        sections = _sections(evidence, limits)
        lines = _render(sections)
        if len(lines) + few <= MOST_LINES:
            break
    return sections, lines


def _sections(evidence: Evidence, limits: RowLimits) -> dict[str, object]:
    unchanged = evidence.finding.kind == Finding.Kind.UNCHANGED
    rows = evidence.comparisons
    return {
        "virtual": evidence.virtual,
        "clocks": ", ".join(sorted({_clock(facts.machine) for facts in evidence.machines})),
        "verdict": wrap(_verdict(evidence), most=limits.verdict),
        "culprit": _culprit(evidence, limits.culprit),
        "explanation": _whole(evidence.explanation, limits.explanation),
        "unchanged": unchanged,
        "judged": bool(rows),
        "table": _table(evidence, limits.table),
        "coverage": _capped(coverage_lines(rows, column_names(rows)), limits.coverage),
        "gaps": _capped([_item(gap) for gap in evidence.gaps], limits.gaps),
        "run": _run(evidence, limits),
        "page": f"{settings.SITE_URL}/series/{evidence.series.pk}/",
        "tags": _tags(evidence),
        "address": parseaddr(settings.MAIL_FROM)[1],
    }


def _render(sections: dict[str, object]) -> list[str]:
    text = render_to_string("mail/report.txt", sections)
    return [line.rstrip() for line in re.sub(r"\n{3,}", "\n\n", text).strip("\n").split("\n")]


def _verdict(evidence: Evidence) -> str:
    headline = evidence.finding.headline
    return f"{_NO_CHANGE} {headline}" if evidence.finding.kind == Finding.Kind.UNCHANGED else headline


def _table(evidence: Evidence, most: int) -> list[str]:
    """Nothing where nothing was booted, because both kernels run the same code."""
    rows = evidence.comparisons
    if not rows:
        return []
    unchanged = evidence.finding.kind == Finding.Kind.UNCHANGED
    return coverage_table(rows, most) if unchanged else moved_table(rows, evidence.moved, most)


def _culprit(evidence: Evidence, most: int) -> list[str]:
    """Which patch made it, then what each of them adds; as many lines as there is room for."""
    bisected = wrap(evidence.culprit, most=min(most, 4)) if evidence.culprit else []
    walked = [line for sentence in evidence.walk for line in wrap(sentence, first="  ", indent="    ", most=2)]
    if not walked:
        return bisected
    room = most - len(bisected) - 1
    return [*bisected, *(["What each patch adds:", *_capped(walked, room)] if room > 1 else [])]


def _whole(text: str, most: int) -> list[str]:
    """Nothing where the room is short: how much an explanation is worth stands at its end."""
    lines = wrap(text) if text else []
    return lines if len(lines) <= most else []


def _run(evidence: Evidence, limits: RowLimits) -> list[str]:
    base = evidence.base
    lines = wrap(f"base {base.sha[:12]} ({base.subject}), tree {base.tree.name}", first="  ", indent="    ", most=2)
    kernels = dict.fromkeys(
        f"kernel {build.config.name} ({build.arch}), {build.compiler_version or build.toolchain.compiler}"
        for build in evidence.builds
    )
    lines += _capped([_item(text) for text in kernels], 2)
    machines = [
        _item(f"{_named(facts)}: {facts.cpu or 'CPU model not told'}, {_clock(facts.machine)}")
        for facts in evidence.machines
    ]
    lines += _capped(machines, limits.machines)
    if not evidence.machines:
        return lines
    cmdlines = {facts.cmdline for facts in evidence.machines}
    if len(cmdlines) > 1:
        return [*lines, "  command lines differ between machines: see the page"]
    told = cmdlines.pop() or "not told"
    return lines + wrap(f"command line: {told}", first="  ", indent="    ", most=2)


def _item(text: str) -> str:
    return wrap(text, first="  ", most=1)[0]


def _named(facts: MachineFigures) -> str:
    return f"{facts.machine.name} (cut short, more boots might tell more)" if facts.cut_short else facts.machine.name


def _clock(machine: Machine) -> str:
    return "counted instructions" if machine.clock == Machine.Clock.INSTRUCTIONS else "wall clock"


def _tags(evidence: Evidence) -> list[str]:
    """Tags help to find a report from a fix; nobody should credit figures that are not evidence."""
    if evidence.virtual or evidence.finding.kind not in {Finding.Kind.REGRESSED, Finding.Kind.SPLIT}:
        return []
    return [
        f"Reported-by: {plain(settings.MAIL_FROM)}",
        f"Closes: {settings.SITE_URL}/series/{evidence.series.pk}/",
    ]


def _capped(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"  ... {len(lines) - most + 1} more lines on the page of the series"]


CHANGED = Because.TEXT_CHANGED(
    "its finding says something else since it was written: the text is new, and wants to be read again"
)


def renew(report: Report) -> bool:
    """Write the text anew if the finding was bisected after it was written; whether another text came of it.

    A bisection names a patch, and takes back what its ends do not show again. Raises DomainError `incomplete-report`
    where nothing may be told any more.
    """
    if report.state not in (ReportState.DRAFT, ReportState.APPROVED) or not _was_bisected_since(report):
        return False
    text = other_text(report)
    return text is not None and report.note(CHANGED, subject=text.subject, body=text.body, released=False)


def other_text(report: Report) -> Text | None:
    """What its finding says now, None if that is what stands there."""
    if report.finding is None:
        return None
    text = compose(gather(report.finding))
    return None if (text.subject, text.body) == (report.subject, report.body) else text


def _was_bisected_since(report: Report) -> bool:
    if report.finding_id is None:
        return False
    return Transition.objects.filter(
        subject="finding", subject_id=report.finding_id, before=Finding.State.BISECTING, at__gt=report.created_at
    ).exists()


_MESSAGE_ID = re.compile(r"[!-;=?-~]{1,400}")
_MOST_REFERENCES = 20
_valid_domain = EmailValidator(allowlist=["localhost"])


@dataclass(frozen=True)
class Envelope:
    """Where a reply goes. Message ids stand without their angle brackets."""

    to: tuple[str, ...]
    cc: tuple[str, ...]
    in_reply_to: str
    references: tuple[str, ...]


def envelope(series: Series) -> Envelope:
    """To the author, Cc the people and lists of the first mail; at most MAIL_MAX_RECIPIENTS, each once, never us.

    Nobody of a header that somebody else may have written, as far as its proof tells; who approves a series has seen
    its mails.
    """
    root = root_message(series)
    is_seen = series.approved_at is not None
    own = [name for name in (Open.TO, Open.CC) if root and (is_seen or name not in root.unsigned)]
    named = _named_in(bytes(root.raw), own) if root else []
    author, *others = _distinct([series.author_address, series.mailing_list.address, *named]) or [""]
    if not author:
        raise DomainError("incomplete-report", "nobody to write to: neither author nor list has a usable address")
    if not _MESSAGE_ID.fullmatch(series.first_message_id):
        raise DomainError("incomplete-report", "the message id of the series cannot be answered")
    before = [name for name in (root.references if root else []) if _MESSAGE_ID.fullmatch(name)]
    references = list(dict.fromkeys([*before[-_MOST_REFERENCES:], series.first_message_id]))
    return Envelope(
        to=(author,),
        cc=tuple(others[: settings.MAIL_MAX_RECIPIENTS - 1]),
        in_reply_to=series.first_message_id,
        references=tuple(references),
    )


def opt_outs(addresses: Iterable[str]) -> dict[str, datetime]:
    """Those of them that asked for no mail, in lower case, and when."""
    asked = OptOut.objects.filter(address__in={address.lower() for address in addresses})
    return dict(asked.values_list("address", "created_at"))


def readers(report: Report, out: Container[str]) -> tuple[list[str], list[str]]:
    """To and Cc of a report without `out`."""
    to = [address for address in report.to if address.lower() not in out]
    cc = [address for address in report.cc if address.lower() not in out]
    return (to, cc) if to else (cc[:1], cc[1:])


def refuse_readers(to: Sequence[str], cc: Sequence[str]) -> None:
    if len(to) + len(cc) > settings.MAIL_MAX_RECIPIENTS:
        raise DomainError("too-many-recipients", f"{len(to) + len(cc)} recipients are too many")
    if not to:
        raise DomainError("nobody-to-tell", "every recipient has opted out")


def _named_in(raw: bytes, headers: Iterable[str]) -> list[str]:
    # The old policy: the new one's header parser fails on some malformed headers.
    mail = message_from_bytes(raw, policy=policy.compat32)
    fields = [str(value) for name in headers for value in mail.get_all(name, [])]
    try:
        return [address for _name, address in getaddresses(fields)]
    except RecursionError:
        # Comments nested a thousand deep: such a mail names nobody.
        return []


def _distinct(addresses: Iterable[str]) -> list[str]:
    own = parseaddr(settings.MAIL_FROM)[1].lower()
    found: dict[str, str] = {}
    for address in addresses:
        clean = address.strip()
        if clean.lower() != own and _usable(clean):
            found.setdefault(clean.lower(), clean)
    return list(found.values())


def _usable(address: str) -> bool:
    try:
        _valid_domain(address)
    except ValidationError:
        return False
    return address.isascii() and address.isprintable()


_PERMANENT_FROM = 500

_PRIVATE = tuple(ipaddress.ip_network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"))


@dataclass(frozen=True)
class Route:
    """A mail server. `options` are for Django's SMTP backend; without any it takes the site's settings."""

    name: str
    options: dict[str, Any]


def route(*, virtual: bool) -> Route:
    """Raises DomainError: `virtual-stays` when virtual results have no sink to go to, temporary `sink-unknown`."""
    if not virtual:
        return Route(f"{settings.EMAIL_HOST}:{settings.EMAIL_PORT}", {})
    if not settings.MAIL_SINK:
        raise DomainError("virtual-stays", "virtual results never leave the site, and no mail sink is set")
    host, _, port = settings.MAIL_SINK.rpartition(":")
    if not (host and port.isdigit() and _stays_inside(host)):
        raise DomainError(
            "virtual-stays",
            "virtual results never leave the site: the sink must be HOST:PORT on loopback or in a private network",
        )
    options = {"host": host.strip("[]"), "port": int(port), "username": "", "password": "", "use_tls": False}
    return Route(settings.MAIL_SINK, options)


def build_mail(delivery: Delivery, to: list[str], cc: list[str]) -> EmailMessage:
    """Made from the row alone, so that every try gives the same bytes."""
    report = delivery.report
    about = report.finding
    return EmailMessage(
        subject=report.subject,
        body=report.body,
        from_email=settings.MAIL_FROM,
        to=to,
        cc=cc,
        headers={
            "Message-ID": f"<{delivery.message_id}>",
            "Date": format_datetime(delivery.created_at),
            "In-Reply-To": f"<{report.in_reply_to}>",
            "References": " ".join(f"<{reference}>" for reference in report.references),
            "Auto-Submitted": "auto-generated",
            "X-Tidemark": f"series/{about.series_id}" if about and about.series_id else f"report/{report.pk}",
        },
    )


def transmit(mail: EmailMessage, way: Route) -> None:
    """Raises DomainError, permanent when the server will never take this mail."""
    connection = get_connection(**way.options)
    try:
        connection.open()
        connection.send_messages([mail])
    except (smtplib.SMTPException, OSError) as error:
        words = _words(error)
        # The operator's log alone tells who was refused.
        log.warning("mail_refused", way=way.name, message_id=mail.extra_headers.get("Message-ID", ""), said=words)
        said = _ADDRESS.sub("(an address)", words)
        raise DomainError("mail-refused", f"{way.name}: {said}", permanent=_permanent(error)) from error
    finally:
        # The server has taken the mail already: a bad goodbye must not send it again.
        with suppress(smtplib.SMTPException, OSError):
            connection.close()


# The reason of a delivery is read by everybody.
_ADDRESS = re.compile(r"<?[^\s<>@]{1,256}@[^\s<>@:;,]{1,256}>?")


def _permanent(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= _PERMANENT_FROM for code, _text in error.recipients.values())
    # A wrong password is the site's fault, and is put right without the mail being lost.
    if isinstance(error, smtplib.SMTPAuthenticationError):
        return False
    return isinstance(error, smtplib.SMTPResponseException) and error.smtp_code >= _PERMANENT_FROM


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return "; ".join(f"{who}: {code} {_decoded(text)}" for who, (code, text) in error.recipients.items())
    if isinstance(error, smtplib.SMTPResponseException):
        return f"{error.smtp_code} {_decoded(error.smtp_error)}"
    return str(error) or type(error).__name__


def _decoded(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def _stays_inside(host: str) -> bool:
    """Whether every address of `host` is loopback or of a private network, as in compose."""
    try:
        found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except OSError as error:
        # A name service that is away for a moment says nothing about where the sink is.
        raise DomainError("sink-unknown", f"{host} cannot be looked up: {error}", permanent=False) from error
    addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    return all(
        address.is_loopback or any(address in network for network in _PRIVATE if network.version == address.version)
        for address in addresses
    )
