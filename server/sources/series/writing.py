"""Writing the series of one thread: rows are matched with the versions that its mails make now, and made to fit."""

from collections.abc import Mapping
from typing import Any

import structlog

from server.core import clock
from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import Posting, Version
from server.sources.messages.facts import MailFacts
from server.sources.models import Message, Patch, Series
from server.sources.series.explaining import explain_unused
from server.sources.series.fields import is_taken, series_fields, with_free_root
from server.sources.series.late_covers import add_late_covers
from server.sources.series.retaking import check_anew, retake_places
from server.sources.series.rows import SeriesRow, ThreadRows
from server.sources.series.settling import settle_series
from server.sources.series.superseding import supersede

log = structlog.get_logger(__name__)

State = Series.State
LEFT_OUT = "a mail that is not proved is left out: all others of its sender are"
_AT_A_TIME = 500
_IDENTITY = frozenset({"cover_id", "subject", "author_address", "version", "minor", "change_id", "submitted_at", "rfc"})
Matched = list[tuple[Version, SeriesRow | None]]


def write_versions(rows: ThreadRows, facts: Mapping[int, MailFacts]) -> bool:
    """Bring all series of a thread up to date; `facts` has all that `rows.unread()` asked for.

    The caller holds the lock of the mails. Costs a few queries, and some more for each series that changes. False when
    it was late before all were written: the rest is done the next time.
    """
    for released in [row.series for row in rows.series if row.released]:
        released.advance(State.INCOMPLETE, LEFT_OUT, checked_at=None)
    retaken = _retake(rows, facts)
    open_versions = [
        v for v in rows.versions if not (rows.settled & {p.key for p in v.postings} or _is_nothing(rows, v))
    ]
    matched = _match(open_versions, [row for row in rows.series if row.open])
    _drop_unmatched(rows, matched)
    for changed in retaken:
        check_anew(rows, facts, changed)
    closed = [row for row in rows.series if not row.open]
    late = add_late_covers(rows, facts, closed)
    homeless: set[int] = set()
    # The older ones stand first: a partial re-roll takes over what is stored of them.
    new = 0
    for version, row in matched:
        if rows.is_late() and new:
            break
        rows.check_time()
        if not _write(rows, facts, version, row):
            homeless |= {p.key for p in version.postings}
        new += row is None
    if rows.is_late() and new:
        return False
    used = rows.settled | late | {p.key for v, _ in matched for p in v.postings} - homeless
    for row in [row for row in rows.series if not row.open]:
        _update_trailers(rows, row)
    for patch in rows.unread_patches():
        Patch.objects.filter(pk=patch.pk).update(**facts[patch.message_id].columns)
    explain_unused(rows, used, homeless)
    return True


def _is_nothing(rows: ThreadRows, version: Version) -> bool:
    """Whether it is only what was forged, and left out, of a version of somebody's."""
    doubted = all(p.doubted and rows.messages[p.key].authentic is False for p in version.postings)
    return doubted and not version.complete


def _retake(rows: ThreadRows, facts: Mapping[int, MailFacts]) -> list[SeriesRow]:
    """Let proved mails take the places of those that are not; returns the series that changed."""
    changed = retake_places(rows, facts)
    for row, patch, mail in changed:
        patch.delete()
        row.patches[patch.index] = _patch(rows, facts, row.series, rows.posting(mail))
    Patch.objects.bulk_create(row.patches[patch.index] for row, patch, _ in changed)
    return list({row.series.pk: row for row, *_ in changed}.values())


def _match(versions: list[Version], open_rows: list[SeriesRow]) -> Matched:
    """Each version with the open series that shares most mails with it, of the same number where there is one."""
    left = {row.series.pk: row for row in open_rows}
    members = {pk: row.mails for pk, row in left.items()}
    owner: dict[int, list[int]] = {}
    for pk, mails in members.items():
        for mail in mails:
            owner.setdefault(mail, []).append(pk)
    found: dict[int, SeriesRow | None] = {}
    # What may be anybody's does not get the series of those who proved theirs.
    for version in sorted(versions, key=lambda v: v.root.doubted):
        keys = {p.key for p in version.postings}
        near = {pk for key in keys for pk in owner.get(key, []) if pk in left}
        ranked = sorted(near, key=lambda pk: (left[pk].series.number != version.number, -len(members[pk] & keys), pk))
        found[version.root.key] = left.pop(ranked[0]) if ranked else None
    return [(version, found[version.root.key]) for version in versions]


def _drop_unmatched(rows: ThreadRows, matched: Matched) -> None:
    """An incomplete series all of whose mails turned out to belong to others never was one."""
    kept = {row.series.pk for _, row in matched if row}
    for row in rows.series:
        if row.series.state == State.INCOMPLETE and row.series.pk not in kept:
            log.info("series_merged", trace=row.series.trace, series=row.series.pk)
            row.series.delete()
    gone = [row for row in rows.series if row.series.pk is None]
    rows.series = [row for row in rows.series if row not in gone]


def _write(rows: ThreadRows, facts: Mapping[int, MailFacts], version: Version, row: SeriesRow | None) -> bool:
    """Make or update one series; False if another one begins with the same Message-ID already."""
    stored = row.series if row else None
    fields = with_free_root(series_fields(rows, facts, version), rows.messages[version.root.key], stored)
    if is_taken(fields, stored):
        if row and row.series.state == State.INCOMPLETE:
            row.series.delete()
        return False
    reason = _reason(rows, version)
    if row is None:
        row = SeriesRow(Series.objects.create(state=State.INCOMPLETE, reason=reason, **fields).record_creation(), {})
        changed = set(fields)
    else:
        if row.series.state == State.INCOMPLETE:
            fields["reason"] = reason
        changed = _update(row.series, fields)
    _write_patches(rows, facts, version, row)
    rows.roots[version.root.key] = row
    _update_trailers(rows, row)
    if version.complete:
        _complete(version, row.series)
    elif changed & _IDENTITY:
        # What is known of it now may tell that its next version is there already.
        supersede(row.series)
    return True


def _update(series: Series, fields: Mapping[str, Any]) -> set[str]:
    """Store what differs; returns the names of the columns."""
    changed = {name: value for name, value in fields.items() if getattr(series, name) != value}
    if changed:
        Series.objects.filter(pk=series.pk, state=series.state).update(**changed)
    for name, value in changed.items():
        setattr(series, name, value)
    return set(changed)


def _write_patches(rows: ThreadRows, facts: Mapping[int, MailFacts], version: Version, row: SeriesRow) -> None:
    wanted = {posting.index: posting for posting in version.patches}
    wrong = {i: p for i, p in row.patches.items() if i not in wanted or wanted[i].key != p.message_id}
    if wrong:
        Patch.objects.filter(pk__in=[patch.pk for patch in wrong.values()]).delete()
    for index in wrong:
        del row.patches[index]
    new = {i: _patch(rows, facts, row.series, p) for i, p in wanted.items() if i not in row.patches}
    Patch.objects.bulk_create(new.values(), batch_size=_AT_A_TIME)
    row.patches |= new


def _patch(rows: ThreadRows, facts: Mapping[int, MailFacts], series: Series, posting: Posting) -> Patch:
    message = rows.messages[posting.key]
    return Patch(
        series=series,
        index=posting.index,
        message=message,
        subject=parse_subject(message.subject).title,
        trailers=rows.followups.of_patch(message, _cover_of(rows, series, posting.key)),
        **facts[posting.key].columns,
    )


def _update_trailers(rows: ThreadRows, row: SeriesRow) -> None:
    """Answers bring trailers to every series, whatever became of it."""
    changed = []
    for patch in row.patches.values():
        rows.check_time()
        message = rows.messages.get(patch.message_id)
        cover = _cover_of(rows, row.series, patch.message_id)
        found = rows.followups.of_patch(message, cover) if message else patch.trailers
        if found != patch.trailers:
            patch.trailers = found
            changed.append(patch)
    Patch.objects.bulk_update(changed, ["trailers"], batch_size=_AT_A_TIME)
    ordered = [row.patches[index].trailers for index in sorted(row.patches)]
    together = rows.followups.of_series(ordered, _cover_of(rows, row.series))
    if together != row.series.trailers:
        row.series.trailers = together
        Series.objects.filter(pk=row.series.pk).update(trailers=together)


def _cover_of(rows: ThreadRows, series: Series, patch: int = 0) -> Message | None:
    """The letter whose answers count for `patch`, or for all of the series.

    Who answered the letter of an older version did not know the patches of a partial re-roll: those carried over only.
    """
    cover = rows.messages.get(series.cover_id or 0)
    if cover is None or cover.message_id == series.first_message_id:
        return cover
    older = rows.roots.get(cover.pk)
    return cover if older and patch in older.mails else None


def _reason(rows: ThreadRows, version: Version) -> str:
    reason = f"{len(version.patches)} of {version.total} patches"
    deleted = [p for p in (*version.postings, *version.carried) if rows.is_deleted(p.key)]
    if deleted:
        reason += f"; the archive deleted <{deleted[0].message_id}>"
    if version.complete and version.settles_at:
        reason += f"; others may follow until {version.settles_at:%Y-%m-%d %H:%M} UTC"
    return reason


def _complete(version: Version, series: Series) -> None:
    if series.state == State.SUPERSEDED:
        # Now that all of it is known, its next version may turn out to be another one.
        supersede(series)
    elif version.settles_at is None or version.settles_at <= clock.now():
        settle_series(series)
