"""Who sent the mails of a series, and what proved it: for pages and scripts."""

from dataclasses import dataclass

from django.db.models import QuerySet

from server.sources.mail.subjects import parse_subject
from server.sources.models import Message, Series

_MOST = 50
_LONGEST_TITLE = 200


@dataclass(frozen=True, slots=True)
class SenderRow:
    """`proved` is None while any of the mails is unchecked, and False as soon as one was not proved."""

    address: str
    name: str
    mails: int
    proved: bool | None
    proofs: tuple[str, ...]


def mails_of(series: Series) -> "QuerySet[Message]":
    """The cover letter and all patches, without what they hold. Two queries, both of which go by an index."""
    wanted = [*series.patches.values_list("message_id", flat=True), series.cover_id or 0]
    return Message.objects.filter(pk__in=wanted).defer("raw", "references")


def sender_rows(series: Series) -> tuple[SenderRow, ...]:
    """Addresses are one sender in any case of their letters."""
    grouped: dict[str, list[tuple[str, str, bool | None, str]]] = {}
    facts = mails_of(series).order_by("id").values_list("sender_address", "sender_name", "authentic", "authenticity")
    for address, name, authentic, proof in facts:
        grouped.setdefault(address.lower(), []).append((address, name, authentic, proof))
    return tuple(_sender(mails) for mails in list(grouped.values())[:_MOST])


@dataclass(frozen=True, slots=True)
class Unproved:
    """`shown` are the first mails by place and subject, `more` counts the others."""

    shown: tuple[str, ...]
    more: int


def unproved_mails(series: Series, most: int) -> Unproved:
    """The cover letter and patches whose senders are not proved, or not checked yet. Three queries."""
    letter = Message.objects.filter(pk=series.cover_id or 0).exclude(authentic=True).values_list("subject", flat=True)
    letters = [(0, parse_subject(subject).title) for subject in letter]
    patches = series.patches.exclude(message__authentic=True).order_by("index")
    found = [*letters, *patches.values_list("index", "subject")[:most]][:most]
    more = len(letters) + patches.count() - len(found)
    return Unproved(tuple(f"{index}/{series.total} {title[:_LONGEST_TITLE]}" for index, title in found), more)


def _sender(mails: list[tuple[str, str, bool | None, str]]) -> SenderRow:
    marks = {authentic for _, _, authentic, _ in mails}
    proofs = dict.fromkeys(proof for *_, proof in mails if proof)
    return SenderRow(
        address=mails[0][0],
        name=mails[0][1],
        mails=len(mails),
        proved=False if False in marks else None if None in marks else True,
        proofs=tuple(proofs)[:_MOST],
    )
