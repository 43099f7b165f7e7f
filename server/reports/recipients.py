"""Who gets a reply, and where it hangs in the thread. All of it comes from hostile mails."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.utils import getaddresses, parseaddr

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import EmailValidator

from server.core.errors import DomainError
from server.reports.evidence import root_message
from server.reports.models import OptOut
from server.sources.models import Series
from server.sources.trust.proofs import RECIPIENTS_OPEN

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
    own = [name for name, words in RECIPIENTS_OPEN.items() if root and (is_seen or words not in root.authenticity)]
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


def welcome(addresses: Iterable[str]) -> list[str]:
    """Those who did not opt out."""
    wanted = list(addresses)
    out = set(OptOut.objects.filter(address__in=[a.lower() for a in wanted]).values_list("address", flat=True))
    return [address for address in wanted if address.lower() not in out]


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
