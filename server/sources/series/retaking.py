"""A place of a held series goes to the mail that is proved, whoever was faster.

Anybody may write the author's address on a patch and send it before hers comes. Which of two is hers shows only when
their senders are proved, and that is asked when a series is whole. So where a patch turned out to be nobody's in
particular, others for its place are proved as well, and one that is takes it. A patch that is not proved itself never
takes the place of another: what a person looks at before he approves is changed by its author alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import structlog

from server.core.tasks import enqueue
from server.sources.mail.postings import Posting, Version
from server.sources.mail.threads import SENT_TOGETHER
from server.sources.messages.facts import MailFacts
from server.sources.models import MailingList, Message, Patch, Series
from server.sources.series.fields import is_taken, series_fields
from server.sources.series.rows import SeriesRow, ThreadRows
from server.sources.series.settling import NOT_CHECKED
from server.sources.series.superseding import supersede

log = structlog.get_logger(__name__)

# Proving costs look-ups. Who floods a place is asked for the first ones, and for the next when those are none.
_MOST_ASKED = 5
_ROOT = ("mailing_list_id", "root_message_id", "version", "minor")


@dataclass(frozen=True)
class Claim:
    """`mail` is for the same place as the patch of `row` at `index`, which is not proved."""

    row: SeriesRow
    index: int
    mail: Message


def claims_in(rows: ThreadRows) -> list[Claim]:
    """Mails that may take the places of unproved patches: of each place those that came first, proved ones in front."""
    found: list[Claim] = []
    for row in rows.series:
        if row.series.state == Series.State.HELD:
            for index, patch in sorted(row.patches.items()):
                mail = rows.messages.get(patch.message_id)
                if mail and mail.authentic is False and mail.kind == Message.Kind.PATCH:
                    found += [Claim(row, index, rival) for rival in _rivals(rows, row, mail)[:_MOST_ASKED]]
    return found


def _rivals(rows: ThreadRows, row: SeriesRow, taken: Message) -> list[Message]:
    own = rows.posting(taken)
    others = [rows.posting(rows.messages[pk]) for pk in row.mails if pk in rows.messages and pk != taken.pk]
    loose = (m for pk, m in rows.messages.items() if pk not in rows.settled and m.kind == Message.Kind.PATCH)
    rivals = [m for m in loose if (is_proved(m) or m.authentic is None) and _is_alike(rows.posting(m), own, others)]
    return sorted(rivals, key=lambda m: (not is_proved(m), rows.posting(m).arrival))


def _is_alike(one: Posting, own: Posting, others: list[Posting]) -> bool:
    """Whether `one` stands where `own` does: the same mark of the same sender, at the same place of the thread."""
    if (one.sender, one.number, one.total, one.index) != (own.sender, own.number, own.total, own.index):
        return False
    if one.message_id == own.message_id:
        return True
    if not one.ancestors:
        near = any(abs(one.sent_at - other.sent_at) <= SENT_TOGETHER for other in [own, *others])
        return near and not own.ancestors
    # What answers the patch itself is a new posting of it, and becomes a version of its own.
    return one.ancestors[0] in {*own.ancestors[:1], *(other.message_id for other in others)}


def is_proved(mail: Message) -> bool:
    return mail.mailing_list.proof == MailingList.Proof.ARCHIVE or mail.authentic is True


def unread_claims(rows: ThreadRows) -> Iterator[int]:
    """The mails whose content is needed to write the series that proved mails change."""
    for claim in claims_in(rows):
        if is_proved(claim.mail):
            yield from {*claim.row.mails, claim.mail.pk} & rows.messages.keys()


def retake_places(rows: ThreadRows, facts: Mapping[int, MailFacts]) -> list[tuple[SeriesRow, Patch, Message]]:
    """Give places to their proved claimants, and ask for the proof of the others.

    Returns the patches that have other mails now; the caller stores them.
    """
    changed: dict[int, tuple[SeriesRow, Patch, Message]] = {}
    for claim in claims_in(rows):
        patch = claim.row.patches[claim.index]
        if patch.pk in changed or claim.mail.pk in rows.settled:
            continue
        if not is_proved(claim.mail):
            enqueue("sources.prove_mail", claim.mail.pk)
        elif claim.mail.pk in facts:
            changed[patch.pk] = (claim.row, patch, claim.mail)
            rows.settle(claim.mail.pk, instead_of=patch.message_id)
    return list(changed.values())


def check_anew(rows: ThreadRows, facts: Mapping[int, MailFacts], row: SeriesRow) -> None:
    """What the mails of a held series tell of it, and who sent them, may be something else now."""
    series = row.series
    patches = tuple(rows.posting(rows.messages[row.patches[i].message_id]) for i in sorted(row.patches))
    cover = rows.posting(rows.messages[series.cover_id]) if series.cover_id in rows.messages else None
    fields = series_fields(rows, facts, Version(series.version, series.total, cover, patches, minor=series.minor))
    if is_taken(fields, series):
        fields = {name: value for name, value in fields.items() if name not in _ROOT}
    series.note(NOT_CHECKED, checked_at=None, **fields)
    log.info("place_retaken", trace=series.trace, series=series.pk)
    enqueue("sources.check_series", series.pk)
    supersede(series)
