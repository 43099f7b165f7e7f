"""Who may give commands, and whether a mail is proved to be his and to answer what it seems to answer.

Whose role it is decides before anything is proved: name servers are asked for those alone who could be obeyed.
"""

import hashlib
import re
from dataclasses import dataclass
from email.utils import parseaddr

from server.core.errors import DomainError
from server.detection.lifecycle.triage import triagers
from server.detection.models import Finding
from server.reports.commands.reply import Reply
from server.reports.models import Delivery, MailCommand, Report
from server.sources.mirror import mirror
from server.sources.models import MailingList, Message
from server.sources.trust.senders import Maintainers, maintainers_at, trusted_addresses, unmaintained
from server.sources.trust.series_check import sure_headers

Role = MailCommand.Role
_NAMING = ("in-reply-to", "references")
_MOST_PATHS = 2000
_SECONDS = 20.0
_BLANKS = re.compile(rb"\s+")


def role_of(sender: str, report: Report) -> str:
    """By what `sender` (lower case) may decide about what the report tells of; "" for a stranger."""
    finding = report.finding
    if finding is None or "@" not in sender:
        return ""
    if sender in _authors(finding):
        return Role.AUTHOR
    if trusted_addresses([sender]):
        return Role.TRUSTED
    if triagers().filter(email__iexact=sender).exists():
        return Role.TRIAGER
    return Role.MAINTAINER if _maintains(sender, finding) else ""


def is_reader(sender: str, report: Report) -> bool:
    """Whether the report went to this address: it may ask for no more of them."""
    return sender in {address.lower() for address in (*report.to, *report.cc)}


# As lists write the sender of a mail whose own domain wants no other to send for it.
_VIA = re.compile(r"\bvia\b", re.IGNORECASE)
_LIST_POST = re.compile(rb"^list-post:[^\n]*<mailto:([^>?\s]{1,320})", re.IGNORECASE | re.MULTILINE)


def is_of_list(message: Message) -> bool:
    """Whether the list stands there as the sender: it proves itself, and nobody who wrote to it."""
    sender = message.sender_address.lower()
    if MailingList.objects.filter(address__iexact=sender).exists() or _VIA.search(message.sender_name):
        return True
    raw = bytes(Message.objects.values_list("raw", flat=True).get(pk=message.pk))
    found = _LIST_POST.search(raw.partition(b"\n\n")[0])
    return found is not None and found[1].decode("ascii", "replace").lower() == sender


def _authors(finding: Finding) -> set[str]:
    """Of the series, or of the commit that made the change in a branch, where it is known."""
    if finding.series is not None:
        return {finding.series.author_address.lower()} - {""}
    return {parseaddr(finding.culprit.author)[1].lower()} - {""} if finding.culprit else set()


def _maintains(sender: str, finding: Finding) -> bool:
    if finding.series is not None:
        return not Maintainers(finding.series).doubt(sender)
    culprit = finding.culprit
    if culprit is None or culprit.foreign:
        return False
    try:
        some = ("-r", "--no-commit-id", "--name-only", "-z", "--no-renames", culprit.sha)
        told = mirror().output("diff-tree", *some, timeout=_SECONDS).decode("utf-8", "replace")
        paths = [path for path in told.split("\0") if path]
        few = 0 < len(paths) <= _MOST_PATHS
        return few and not unmaintained(maintainers_at(mirror(), culprit.sha), sender, paths)
    except (DomainError, OSError):
        return False


@dataclass(frozen=True)
class Copies:
    """By which other copies of an obeyed mail are known: lists change texts, and some signatures leave the name open.

    Of a text whose signature covers no name of its mail nothing but the text can be told apart: it counts once.
    """

    by_name: str
    by_text: str


def answers_this(message: Message, reply: Reply, delivery: Delivery) -> bool:
    """Whether it is proved that this mail answers that one of ours.

    Else whoever has a mail of a maintainer could post it again as an answer to another report.
    """
    sure = sure_headers(message, _NAMING)
    named = [
        *(reply.in_reply_to if "in-reply-to" in sure else ()),
        *(reply.references if "references" in sure else ()),
    ]
    return delivery.message_id in named


def copies_of(message: Message, reply: Reply) -> Copies:
    sender = message.sender_address.lower()
    sure = sure_headers(message, ("message-id", "date"))
    covered = [sender.encode(), _BLANKS.sub(b" ", reply.body).strip()]
    if "message-id" in sure:
        covered.append(message.message_id.encode())
    if "date" in sure:
        covered.append(reply.date.encode())
    return Copies(_hash(sender.encode(), message.message_id.encode()), _hash(*covered))


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
