"""Who is written to, and on which thread: of a series, of a commit in a branch, and below a mail of our own."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.utils import getaddresses, parseaddr

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from server.core.errors import DomainError
from server.detection.models import Finding
from server.reports.composer.evidence import root_message
from server.reports.culprit import MESSAGE_ID, concerned, place_of, read_commit
from server.reports.models import Report
from server.sources.models import Open, Series

_MOST_REFERENCES = 20
# Nobody reads these.
_NOBODY = re.compile(r"(no-?reply|do-?not-?reply)\b", re.IGNORECASE)
_valid_domain = EmailValidator(allowlist=["localhost"])


@dataclass(frozen=True)
class Envelope:
    """Where a mail goes. Message ids stand without their angle brackets; one that begins a thread answers none."""

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
    if not MESSAGE_ID.fullmatch(series.first_message_id):
        raise DomainError("incomplete-report", "the message id of the series cannot be answered")
    before = [name for name in (root.references if root else []) if MESSAGE_ID.fullmatch(name)]
    references = list(dict.fromkeys([*before[-_MOST_REFERENCES:], series.first_message_id]))
    return Envelope(
        to=(author,),
        cc=tuple(others[: settings.MAIL_MAX_RECIPIENTS - 1]),
        in_reply_to=series.first_message_id,
        references=tuple(references),
    )


def envelope_of_branch(finding: Finding) -> Envelope:
    """To the culprit's author, Cc its committer and those whose files it touches; on its thread where that is known.

    GitError, temporary, where the mirror cannot be read.
    """
    if finding.culprit is None:
        raise DomainError("incomplete-report", "nobody to write to: the commit that made the change is not known")
    commit = read_commit(finding.culprit.sha)
    named = [commit.author, commit.committer, *concerned(commit, finding)]
    first, *others = _distinct(name for name in named if not _NOBODY.match(name)) or [""]
    if not first:
        raise DomainError("incomplete-report", "nobody to write to: the commit names no usable address")
    place = place_of(commit)
    return Envelope(
        to=(first,),
        cc=tuple(others[: settings.MAIL_MAX_RECIPIENTS - 1]),
        in_reply_to=place.message_id,
        references=place.references[-_MOST_REFERENCES:],
    )


def envelope_below(report: Report) -> Envelope:
    """Below a mail of our own that left, to all its readers."""
    name = report.delivery.message_id
    return Envelope(to=tuple(report.to), cc=tuple(report.cc), in_reply_to=name, references=(*report.references, name))


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
