"""A place of a held series goes to the mail that is proved, whoever was faster.

Anybody may write the author's address on a patch and send it before hers comes. Which of two is hers shows only when
their senders are proved, and that is asked when a series is whole. So where a patch turned out to be nobody's in
particular, others for its place are proved as well, and one that is takes it. A patch that is not proved itself never
takes the place of another: what a person looks at before he approves is changed by its author alone.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import structlog

from server.core.tasks import enqueue
from server.sources.mail.postings import Posting, Version
from server.sources.mail.threads import SENT_TOGETHER
from server.sources.messages.facts import MailFacts
from server.sources.models import Message, Patch, Series
from server.sources.series.doubts import is_proved
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
    """Mails that may take the places of unproved patches: of each place those that came first, proved ones in front.

    Takes time in proportion to the mails of the thread, and to those that say the same place of one series.
    """
    found: list[Claim] = []
    loose: dict[Hashable, list[Message]] | None = None
    for row in rows.series:
        rows.check_time()
        if row.series.state != Series.State.HELD:
            continue
        nobodys = [(index, mail) for index, mail in _mails_of(rows, row) if mail.authentic is False]
        if not nobodys:
            continue
        loose = _loose_by_place(rows) if loose is None else loose
        around = Around.of(rows, row)
        for index, mail in nobodys:
            rows.check_time()
            own = rows.posting(mail)
            alike = (m for m in loose.get(_place(own), ()) if around.takes(rows.posting(m), own))
            found += [Claim(row, index, rival) for rival in islice(alike, _MOST_ASKED)]
    return found


def _mails_of(rows: ThreadRows, row: SeriesRow) -> Iterator[tuple[int, Message]]:
    for index, patch in sorted(row.patches.items()):
        mail = rows.messages.get(patch.message_id)
        if mail and mail.kind == Message.Kind.PATCH:
            yield index, mail


def _place(posting: Posting) -> Hashable:
    """Who says which place of what: of two patches for one place it is the same."""
    return posting.sender, posting.number, posting.total, posting.index


def _loose_by_place(rows: ThreadRows) -> dict[Hashable, list[Message]]:
    """The patches of no series that are proved or may be, by what they say, in the order in which they are asked."""
    found: dict[Hashable, list[Message]] = {}
    for pk, mail in rows.messages.items():
        if pk not in rows.settled and mail.kind == Message.Kind.PATCH and (is_proved(mail) or mail.authentic is None):
            found.setdefault(_place(rows.posting(mail)), []).append(mail)
    for mails in found.values():
        mails.sort(key=lambda m: (not is_proved(m), rows.posting(m).arrival))
    return found


@dataclass(frozen=True)
class Around:
    """The mails of a series, for the question whether another one stands where one of them does.

    `ids` has how many of them have each Message-ID, which may be the same for two; `times` in their order.
    """

    ids: Counter[str]
    times: list[datetime]

    @classmethod
    def of(cls, rows: ThreadRows, row: SeriesRow) -> "Around":
        there = [rows.posting(rows.messages[pk]) for pk in row.mails if pk in rows.messages]
        return cls(Counter(posting.message_id for posting in there), sorted(posting.sent_at for posting in there))

    def takes(self, one: Posting, own: Posting) -> bool:
        """Whether `one`, with the mark and sender of `own`, which is of the series, is at its place of the thread."""
        if one.message_id == own.message_id:
            return True
        if not one.ancestors:
            return not own.ancestors and self._is_near(one.sent_at)
        # What answers the patch itself is a new posting of it, and becomes a version of its own.
        above = one.ancestors[0]
        return above in own.ancestors[:1] or self.ids[above] > (above == own.message_id)

    def _is_near(self, sent_at: datetime) -> bool:
        at = bisect_left(self.times, sent_at - SENT_TOGETHER)
        return at < len(self.times) and self.times[at] <= sent_at + SENT_TOGETHER


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
