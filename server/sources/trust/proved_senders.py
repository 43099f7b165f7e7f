"""Who sent the mails of a series, and what proved it: for pages and scripts."""

from dataclasses import dataclass

from django.db.models import QuerySet

from server.sources.mail.subjects import parse_subject
from server.sources.models import Message, Series

_MOST = 50


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


def unproved_mails(series: Series) -> list[str]:
    """The cover letter and patches, by place and subject, whose senders are not proved, or not checked yet."""
    letter = Message.objects.filter(pk=series.cover_id or 0).exclude(authentic=True)
    patches = series.patches.exclude(message__authentic=True).order_by("index")
    rows = [(0, subject) for subject in letter.values_list("subject", flat=True)]
    rows += patches.values_list("index", "message__subject")
    return [f"{index}/{series.total} {parse_subject(subject).title}" for index, subject in rows]


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
