"""Mails that come when their series stands already: late cover letters, and proved mails that claim a place."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import structlog

from server.core.tasks import enqueue
from server.sources.mail.postings import Posting, Version, parse_subject
from server.sources.mail.series_shape import SENT_TOGETHER
from server.sources.models import MailingList, Message, Patch, Series
from server.sources.series.thread_rows import SeriesRow, ThreadRows, is_proved
from server.sources.supersession import NOT_CHECKED, announced, supersede

# With a blank and the id of a blob it still fits.
_LONGEST_NAMED = 450


def series_fields(rows: ThreadRows, version: Version) -> dict[str, Any]:
    """All that is the same whatever state the series is in. The older versions of its thread must be written."""
    root = rows.messages[version.root.key]
    marks = parse_subject(root.subject)
    order = ([version.cover] if version.cover else []) + list(version.patches)
    fields = {
        "mailing_list_id": root.mailing_list_id,
        "root_message_id": root.message_id,
        "subject": marks.title,
        "author_name": root.sender_name,
        "author_address": root.sender_address,
        "version": version.version,
        "minor": version.minor,
        "total": version.total,
        "submitted_at": root.sent_at or root.received_at,
        "received_at": min(rows.messages[p.key].received_at for p in version.postings),
        "cover_id": version.cover.key if version.cover else None,
        "rfc": marks.rfc,
        "resend": marks.resend,
        "tags": list(marks.tags),
        "canary": root.mailing_list.name == MailingList.CANARY,
        **announced(rows.messages[p.key] for p in order),
    }
    older = rows.rerolled(version)
    return fields | inherited(fields, older.series) if older else fields


def inherited(fields: Mapping[str, Any], older: Series) -> dict[str, Any]:
    """What a partial re-roll takes over: it comes without a cover letter, and the older one's counts for it, too.

    It takes the letter itself with the words, as these are believed only of a sender who was checked.
    """
    words = {name: fields[name] or getattr(older, name) for name in ("base_commit", "change_id", "prerequisites")}
    return {"subject": older.subject, "cover_id": older.cover_id, **words}


def with_free_root(fields: Mapping[str, Any], root: Message, series: Series | None) -> dict[str, Any]:
    """`fields`; where another series begins with the Message-ID of `root` already, with a name of its own.

    Anybody can send a mail with the Message-ID of another one: neither series may keep the other out. No Message-ID
    has a blank (`Series.first_message_id`).
    """
    named = dict(fields)
    if is_taken(named, series):
        named["root_message_id"] = f"{root.message_id[:_LONGEST_NAMED]} {root.blob}"
    return named


def is_taken(fields: Mapping[str, Any], series: Series | None) -> bool:
    """Whether a series other than `series` begins with this Message-ID: they are not unique in the world."""
    unique = {name: fields[name] for name in ("mailing_list_id", "root_message_id", "version", "minor")}
    if series and all(getattr(series, name) == value for name, value in unique.items()):
        return False
    return Series.objects.filter(**unique).exists()


# A place of a held series goes to the mail that is proved, whoever was faster.
#
# Anybody may write the author's address on a patch and send it before hers comes. Which of two is hers shows only
# when their senders are proved, and that is asked when a series is whole. So where a patch turned out to be nobody's
# in particular, others for its place are proved as well, and one that is takes it. A patch that is not proved itself
# never takes the place of another: what a person looks at before he approves is changed by its author alone.

log = structlog.get_logger(__name__)

State = Series.State
# Of these, what the cover letter announces counts. Where something runs already nobody would check its sender any more,
# and a forged change-id must not replace another series.
_BELIEVED = (State.HELD, State.SUPERSEDED)


def add_late_covers(rows: ThreadRows, closed: Sequence[SeriesRow]) -> set[int]:
    """Give the `closed` series their cover letters that came by now; returns the mails that were used."""
    used: set[int] = set()
    for version in rows.versions:
        rows.check_time()
        late = version.cover and version.cover.key not in rows.settled
        if late and rows.settled & {posting.key for posting in version.own}:
            used |= _add_late_cover(rows, version, closed)
        elif version.rerolls:
            _take_over(rows, version)
    return used


def _take_over(rows: ThreadRows, version: Version) -> None:
    """The letter of a series counts for its partial re-rolls, which may wait already."""
    row, older = rows.roots.get(version.root.key), rows.rerolled(version)
    if row is None or row.open or row.series.cover_id or older is None or not older.series.cover_id:
        return
    series = row.series
    if series.state not in _BELIEVED:
        return
    stored = {name: getattr(series, name) for name in ("base_commit", "change_id", "prerequisites")}
    Series.objects.filter(pk=series.pk).update(**inherited(stored, older.series))
    _look_again(series)


def _add_late_cover(rows: ThreadRows, version: Version, closed: Sequence[SeriesRow]) -> set[int]:
    """Give the cover letter of `version` to the settled series that has its patches; returns the mails that it used.

    Only the author's own is taken: reports answer to it, and people read its words as theirs. Where the patches have
    been checked already, or one of them is proved, its sender must be proved first: by its name another series could be
    made to replace this one, and who approves proved patches looks for no forged letter.
    """
    assert version.cover is not None
    cover = rows.messages[version.cover.key]
    patches = {posting.key for posting in version.own}
    own = [r for r in closed if r.series.number == version.number and patches & r.mails]
    # Partial re-rolls hold patches of it as well, but begin with one of theirs.
    roots = [row for key in patches if (row := rows.roots.get(key))]
    row = next((r for r in own if r in roots), next(iter(own), None))
    # Some mark the version on the cover letter only: without it, their patches were taken for a first version.
    row = row or next((r for r in closed if r.series.version == 1 and patches == r.mails), None)
    if row is None or row.series.cover_id or row.series.author_address.lower() != cover.sender_address.lower():
        return set()
    doubted = row.series.state not in _BELIEVED or any(rows.messages[key].authentic for key in patches)
    if doubted and not _is_proved(cover):
        rows.unproved.add(cover.pk)
        return set()
    series, marks = row.series, parse_subject(cover.subject)
    fields = {
        "mailing_list_id": series.mailing_list_id,
        "root_message_id": cover.message_id,
        "version": version.version,
        "minor": version.minor,
        "cover_id": cover.pk,
        "subject": marks.title,
        "submitted_at": cover.sent_at or cover.received_at,
        # The archive may have taken it first, and only its reader was late.
        "received_at": min(series.received_at, cover.received_at),
    }
    fields = with_free_root(fields, cover, series)
    if is_taken(fields, series):
        return set()
    if series.state in _BELIEVED:
        fields |= {
            "rfc": marks.rfc,
            "resend": marks.resend,
            "tags": list(marks.tags),
            "base_commit": cover.base_commit or series.base_commit,
            "change_id": cover.change_id or series.change_id,
            "prerequisites": cover.prerequisites or series.prerequisites,
        }
    Series.objects.filter(pk=series.pk).update(**fields)
    rows.roots[cover.pk] = row
    _look_again(series)
    return {cover.pk}


def _look_again(series: Series) -> None:
    """Its senders and its relatives may be others now."""
    series.refresh_from_db()
    log.info("cover_added", trace=series.trace, series=series.pk)
    if series.state == State.HELD:
        # Its sender is part of what is checked.
        Series.objects.filter(pk=series.pk, state=State.HELD).update(checked_at=None)
        enqueue("sources.check_series", series.pk)
    # Its subject, and with it its relatives, may be known only now.
    supersede(series)


def _is_proved(cover: Message) -> bool:
    """Where nobody has looked yet, this asks for it: the thread is grouped again when its sender is proved."""
    if cover.mailing_list.proof == MailingList.Proof.ARCHIVE:
        return True
    if cover.authentic is None:
        enqueue("sources.prove_mail", cover.pk)
    return bool(cover.authentic)


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


def retake_places(rows: ThreadRows) -> list[tuple[SeriesRow, Patch, Message]]:
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
        else:
            changed[patch.pk] = (claim.row, patch, claim.mail)
            rows.settle(claim.mail.pk, instead_of=patch.message_id)
    return list(changed.values())


def check_anew(rows: ThreadRows, row: SeriesRow) -> None:
    """What the mails of a held series tell of it, and who sent them, may be something else now."""
    series = row.series
    patches = tuple(rows.posting(rows.messages[row.patches[i].message_id]) for i in sorted(row.patches))
    cover = rows.posting(rows.messages[series.cover_id]) if series.cover_id in rows.messages else None
    fields = series_fields(rows, Version(series.version, series.total, cover, patches, minor=series.minor))
    if is_taken(fields, series):
        fields = {name: value for name, value in fields.items() if name not in _ROOT}
    series.note(NOT_CHECKED, checked_at=None, **fields)
    log.info("place_retaken", trace=series.trace, series=series.pk)
    enqueue("sources.check_series", series.pk)
    supersede(series)
