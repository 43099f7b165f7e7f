"""From messages to series: which patches belong together, whether they may run, and what they replace."""

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Count, F, Q, QuerySet

from server.core.errors import DomainError
from server.core.locks import wait_for_lock
from server.core.tasks import enqueue
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import SENT_TOGETHER, Posting, Version, versions_of
from server.sources.models import Message, Patch, Series
from server.sources.superseding import supersede

log = structlog.get_logger(__name__)

_POSTED = (Message.Kind.PATCH, Message.Kind.COVER)
# A thread with more patches than this is an attack or a broken robot: only the newest are grouped.
_LARGEST_THREAD = 500
State = Series.State


@transaction.atomic
def assign_message(message: Message) -> None:
    """Make or update the series that a patch or cover letter belongs to.

    The whole thread is grouped anew each time, so that the order of arrival does not matter. A series that is complete
    keeps its patches whatever comes later, but still takes a cover letter that was late.
    """
    # Two lists may bring the mails of one thread at the same moment.
    wait_for_lock("sources.assign")
    messages = {m.pk: m for m in _thread(message)}
    if _is_copy(message, messages):
        _explain(message, "another copy of a mail that is here already")
        return
    found = versions_of(_posting(m) for m in messages.values() if not _is_copy(m, messages))
    open_series = _settle_complete(found, messages)
    for version in found:
        if version.postings and not open_series.is_settled(version):
            _update(version, messages, open_series.take(version))
    open_series.drop_empty()
    if not Series.objects.filter(Q(patches__message=message) | Q(cover=message)).exists():
        _explain(message, "its place in the series is taken by another mail")


def _explain(message: Message, reason: str) -> None:
    """Say why a mail is in no series; the first reason found is the nearest one."""
    if Message.objects.filter(pk=message.pk, reason="").update(reason=reason):
        message.reason = reason


class _OpenSeries:
    """The incomplete series of one thread, given to the versions that share most mails with them."""

    def __init__(self, rows: list[Series], settled: set[int]) -> None:
        self.members = {row: _member_ids(row) for row in rows}
        self.settled = settled

    def is_settled(self, version: Version) -> bool:
        return any(p.key in self.settled for p in version.postings)

    def take(self, version: Version) -> Series | None:
        keys = {p.key for p in version.postings}
        best = max(self.members, key=lambda row: (len(self.members[row] & keys), -row.pk), default=None)
        if best is None or not self.members[best] & keys:
            return None
        del self.members[best]
        # Its mails are given out anew: those of this version come back at once, others to where they belong.
        best.patches.all().delete()
        return best

    def drop_empty(self) -> None:
        """An incomplete series all of whose mails turned out to belong to others never was one."""
        for row in self.members:
            log.info("series_merged", trace=row.trace, series=row.pk)
            row.delete()


def _settle_complete(found: tuple[Version, ...], messages: dict[int, Message]) -> _OpenSeries:
    touched = Series.objects.filter(Q(patches__message__in=messages) | Q(cover__in=messages)).distinct().order_by("pk")
    incomplete = [row for row in touched if row.state == State.INCOMPLETE]
    settled: set[int] = set()
    for row in touched:
        if row.state == State.INCOMPLETE:
            continue
        members = _member_ids(row)
        settled |= members
        for version in found:
            if version.cover and row.cover_id is None and members & {p.key for p in version.patches}:
                _add_late_cover(row, messages[version.cover.key])
    return _OpenSeries(incomplete, settled)


def _member_ids(row: Series) -> set[int]:
    members = set(row.patches.values_list("message_id", flat=True))
    return members | {row.cover_id} if row.cover_id else members


def _add_late_cover(row: Series, cover: Message) -> None:
    if _is_taken(cover, row.version, row):
        return
    row.cover, row.root_message_id, row.subject = cover, cover.message_id, parse_subject(cover.subject).title
    row.save(update_fields=["cover", "root_message_id", "subject"])
    log.info("cover_added", trace=row.trace, series=row.pk)


def _is_taken(root: Message, version: int, row: Series | None) -> bool:
    """Whether a series other than `row` begins with this Message-ID: they are not unique in the world."""
    same = Series.objects.filter(mailing_list=root.mailing_list, root_message_id=root.message_id, version=version)
    return (same.exclude(pk=row.pk) if row else same).exists()


def _update(version: Version, messages: dict[int, Message], row: Series | None) -> None:
    root = messages[version.root.key]
    fields = {
        "root_message_id": root.message_id,
        "subject": parse_subject(root.subject).title,
        "author_name": root.sender_name,
        "author_address": root.sender_address,
        "version": version.version,
        "total": version.total,
        "submitted_at": root.sent_at or root.received_at,
        "cover": messages[version.cover.key] if version.cover else None,
    }
    reason = f"{len(version.patches)} of {version.total} patches"
    if _is_taken(root, version.version, row):
        for posting in version.postings:
            _explain(messages[posting.key], "another series begins with the same Message-ID")
        if row:
            row.delete()
        return
    if row is None:
        row = Series.objects.create(
            mailing_list=root.mailing_list, state=State.INCOMPLETE, reason=reason, **fields
        ).record_creation()
    else:
        Series.objects.filter(pk=row.pk).update(reason=reason, **fields)
        row.refresh_from_db()
    Patch.objects.bulk_create(
        Patch(series=row, index=p.index, message=messages[p.key], subject=parse_subject(messages[p.key].subject).title)
        for p in version.patches
    )
    if version.complete:
        settle_series(row)


def settle_series(row: Series) -> None:
    """Decide what becomes of a series that has just become complete.

    Trust is the From address alone, and an address is no proof of a person: anyone can write it. TRUSTED_SENDERS is
    therefore for archives that the site itself controls; DKIM comes with the full trust policy.
    """
    mails = [patch.message for patch in row.patches.select_related("message")]
    if row.cover:
        mails.insert(0, row.cover)
    parsed = [_parsed(m) for m in mails]
    facts = {
        "base_commit": next((p.base_commit for p in parsed if p.base_commit), ""),
        "change_id": next((p.change_id for p in parsed if p.change_id), ""),
    }
    strangers = sorted({m.sender_address for m in mails if m.sender_address.lower() not in settings.TRUSTED_SENDERS})
    if strangers:
        reason = f"{', '.join(strangers)} is not a trusted sender: a person must approve"
        row.advance(State.HELD, reason[:1000], **facts)
    elif row.advance(State.READY, f"{row.total} of {row.total} patches, from a trusted sender", **facts):
        enqueue("sources.apply_series", row.pk)
    supersede(row)


@transaction.atomic
def approve_series(*, series: Series, reason: str) -> None:
    """A person lets a held series run, or a refused one try again; `reason` names who and why."""
    # A version that becomes complete at this moment must see this one, or be seen by it.
    wait_for_lock("sources.assign")
    may_run = series.state in {State.HELD, State.REFUSED} and series.patches.count() == series.total
    if not may_run or not series.advance(State.READY, reason, failures=0):
        raise DomainError("not-held", f"series {series.pk} is {State(series.state).label}, not held")
    supersede(series)
    enqueue("sources.apply_series", series.pk)


def find_series(message_id: str) -> Series:
    """The newest series that holds the mail `message_id` (with or without its angle brackets)."""
    message_id = message_id.strip().strip("<>")
    mails = Q(root_message_id=message_id) | Q(patches__message__message_id=message_id)
    series = Series.objects.filter(mails).order_by("-pk").first()
    if series is None:
        raise DomainError("unknown-series", f"no series holds <{message_id}>")
    return series


def sweep_series() -> None:
    """Wake up what a lost message left: ready series not applied, complete ones not yet judged."""
    counted = Series.objects.filter(state=State.INCOMPLETE).annotate(there=Count("patches"))
    for row in counted.filter(there__gte=F("total")):
        with transaction.atomic():
            wait_for_lock("sources.assign")
            settle_series(row)
    for pk in Series.objects.filter(state=State.READY).values_list("pk", flat=True):
        enqueue("sources.apply_series", pk)


def _thread(message: Message) -> list[Message]:
    """All patches and cover letters that could share a series with `message`, oldest row first."""
    posted = Message.objects.filter(kind__in=_POSTED).defer("raw")
    near = _in_thread_of(message, posted)
    if not message.in_reply_to and not message.references:
        sent = message.sent_at or message.received_at
        around = (sent - SENT_TOGETHER, sent + SENT_TOGETHER)
        near |= Q(in_reply_to="", references=[], sender_address__iexact=message.sender_address, sent_at__range=around)
    found = {m.pk: m for m in posted.filter(near | Q(pk=message.pk)).order_by("-pk")[:_LARGEST_THREAD]}
    # What an incomplete series holds already is always grouped with it, or it would lose it.
    rows = Series.objects.filter(Q(patches__message__in=found) | Q(cover__in=found), state=State.INCOMPLETE)
    held = posted.filter(Q(patches__series__in=rows) | Q(pk__in=rows.values("cover")))
    found |= {m.pk: m for m in held}
    return [found[pk] for pk in sorted(found)]


def _in_thread_of(message: Message, posted: QuerySet[Message]) -> Q:
    ids = {message.message_id, message.in_reply_to, *message.references} - {""}
    while True:
        near = Q(message_id__in=ids) | Q(in_reply_to__in=ids) | Q(references__overlap=list(ids))
        wider = set(ids)
        for known, parent, ancestors in posted.filter(near).values_list("message_id", "in_reply_to", "references"):
            wider |= {known, parent, *ancestors} - {""}
        if wider == ids or len(wider) > _LARGEST_THREAD:
            return near
        ids = wider


def _posting(message: Message) -> Posting:
    marks = parse_subject(message.subject)
    numbered = marks.index is not None and bool(marks.total)
    parents = [message.in_reply_to] if message.in_reply_to else []
    return Posting(
        key=message.pk,
        message_id=message.message_id,
        ancestors=tuple(dict.fromkeys([*parents, *reversed(message.references)])),
        sender=message.sender_address.lower(),
        sent_at=message.sent_at or message.received_at,
        version=marks.version,
        index=(marks.index or 0) if numbered else 1,
        total=(marks.total or 1) if numbered else 1,
        numbered=numbered,
    )


def _parsed(message: Message) -> ParsedMail:
    return parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at)


def _is_copy(message: Message, messages: dict[int, Message]) -> bool:
    """Whether an earlier row is the same mail from another list: footers may differ, Message-ID and subject do not.

    The Message-ID alone proves nothing: git gives the same one to an unchanged patch of two versions made in a second.
    """
    same = (message.message_id, message.subject)
    return any(pk < message.pk and (m.message_id, m.subject) == same for pk, m in messages.items())
