"""A cover letter that comes after its series was whole."""

from collections.abc import Mapping, Sequence

import structlog

from server.core.tasks import enqueue
from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import Version
from server.sources.messages.facts import MailFacts
from server.sources.models import MailingList, Message, Series
from server.sources.series.fields import is_taken
from server.sources.series.rows import SeriesRow, ThreadRows
from server.sources.series.superseding import supersede

log = structlog.get_logger(__name__)

State = Series.State
# Of these, what the cover letter announces counts. Where something runs already nobody would check its sender any more,
# and a forged change-id must not replace another series.
_BELIEVED = (State.HELD, State.SUPERSEDED)


def add_late_cover(
    rows: ThreadRows, facts: Mapping[int, MailFacts], version: Version, closed: Sequence[SeriesRow]
) -> set[int]:
    """Give the cover letter of `version` to the settled series that has its patches; returns the mails that it used.

    Only the author's own is taken: reports answer to it, and people read its words as theirs. Where the patches have
    been checked already, its sender must be proved first: by its name another series could be made to replace this one.
    """
    assert version.cover is not None
    cover = rows.messages[version.cover.key]
    patches = {posting.key for posting in version.own}
    row = next((r for r in closed if r.series.version == version.version and patches & r.mails), None)
    # Some mark the version on the cover letter only: without it, their patches were taken for a first version.
    row = row or next((r for r in closed if r.series.version == 1 and patches == r.mails), None)
    if row is None or row.series.cover_id or row.series.author_address.lower() != cover.sender_address.lower():
        return set()
    if row.series.state not in _BELIEVED and not _is_proved(cover):
        rows.unproved.add(cover.pk)
        return set()
    series, told, marks = row.series, facts[cover.pk], parse_subject(cover.subject)
    fields = {
        "mailing_list_id": series.mailing_list_id,
        "root_message_id": cover.message_id,
        "version": version.version,
        "cover_id": cover.pk,
        "subject": marks.title,
        "submitted_at": cover.sent_at or cover.received_at,
        # The archive may have taken it first, and only its reader was late.
        "received_at": min(series.received_at, cover.received_at),
    }
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
    series.refresh_from_db()
    log.info("cover_added", trace=series.trace, series=series.pk)
    if series.state == State.HELD:
        # Its sender is part of what is checked.
        Series.objects.filter(pk=series.pk, state=State.HELD).update(checked_at=None)
        enqueue("sources.check_series", series.pk)
    # Its subject, and with it its relatives, may be known only now.
    supersede(series)
    return {cover.pk}


def _is_proved(cover: Message) -> bool:
    """Where nobody has looked yet, this asks for it: the thread is grouped again when its sender is proved."""
    if cover.mailing_list.proof == MailingList.Proof.ARCHIVE:
        return True
    if cover.authentic is None:
        enqueue("sources.prove_cover", cover.pk)
    return bool(cover.authentic)
