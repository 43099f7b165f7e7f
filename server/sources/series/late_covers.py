"""A cover letter that comes after its series was whole."""

from collections.abc import Mapping, Sequence

import structlog

from server.core.tasks import enqueue
from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import Version
from server.sources.messages.facts import MailFacts
from server.sources.models import MailingList, Message, Series
from server.sources.series.fields import inherited, is_taken, with_free_root
from server.sources.series.rows import SeriesRow, ThreadRows
from server.sources.series.superseding import supersede

log = structlog.get_logger(__name__)

State = Series.State
# Of these, what the cover letter announces counts. Where something runs already nobody would check its sender any more,
# and a forged change-id must not replace another series.
_BELIEVED = (State.HELD, State.SUPERSEDED)


def add_late_covers(rows: ThreadRows, facts: Mapping[int, MailFacts], closed: Sequence[SeriesRow]) -> set[int]:
    """Give the `closed` series their cover letters that came by now; returns the mails that were used."""
    used: set[int] = set()
    for version in rows.versions:
        rows.check_time()
        late = version.cover and version.cover.key not in rows.settled
        if late and rows.settled & {posting.key for posting in version.own}:
            used |= _add_late_cover(rows, facts, version, closed)
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


def _add_late_cover(
    rows: ThreadRows, facts: Mapping[int, MailFacts], version: Version, closed: Sequence[SeriesRow]
) -> set[int]:
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
    series, told, marks = row.series, facts[cover.pk], parse_subject(cover.subject)
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
            "base_commit": told.base_commit or series.base_commit,
            "change_id": told.change_id or series.change_id,
            "prerequisites": list(told.prerequisites) or series.prerequisites,
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
