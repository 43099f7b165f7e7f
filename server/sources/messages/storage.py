"""Storing mails: every one whole and once, with the thread that it belongs to."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any

import structlog
from django.db import DataError, transaction

from server.core import clock
from server.core.access.tries import MOST_BEGUN, failures
from server.core.database import wait_for_lock
from server.core.reasons import Because
from server.sources.mail.diffs import Diff
from server.sources.mail.parser import ParsedMail, parse_mail
from server.sources.mail.postings import Marks, parse_subject
from server.sources.mail.series_shape import SENT_TOGETHER
from server.sources.models import ChangedPath, MailingList, Message, Patch, Series, Thread, ThreadMember
from server.sources.supersession import announced_by, refuse_deleted

# Which thread a mail belongs to: mails that name each other are one thread, whatever list brought them.
#
# Every Message-ID that a thread has or mentions is a row, so that a mail finds its thread by its own few names,
# however long the thread is. A mail may connect two threads: that of its nearest parent, and the one that knows it
# already, which for a mail that is no posting must hold none; the smaller one is re-pointed. Anybody can name any
# number of mails: threads stay apart where together they would be longer than people make them, and one that is so
# long takes no more.

# Under this lock threads are joined and series are made of them. It is held to the end of a transaction of
# milliseconds; with one lock for all of it no two readers can wait for each other.
MAIL_LOCK = "sources.mail"
# Whoever gets it no sooner comes again later, instead of taking all processes of the workers with him. A web process
# gives statements 15 seconds.
_PATIENCE_SECONDS = 10.0
POSTED = (Message.Kind.PATCH, Message.Kind.COVER)
# Small threads are told apart by counting them once.
_FIRST_COUNT = 100
_COUNT_STEP = 8
# Names. The longest threads of stable kernels have some 1500 mails. All of a thread is read with each of its patches.
_LONGEST = 5000


@dataclass(frozen=True)
class Names:
    """`owned` names become the thread's: the mail's own, and that of what it answers. All others are only looked up.

    `parents` are those before it, the nearest first; `beside` is shared by mails that do not name each other.
    """

    own: str
    parents: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    posted: bool = False

    @property
    def owned(self) -> tuple[str, ...]:
        return (self.own, *self.parents[:1], *self.beside)

    @property
    def looked_up(self) -> tuple[str, ...]:
        return (self.own, *self.parents, *self.beside, *self.near)

    def found_in(self, known: Mapping[str, int]) -> list[int]:
        """The threads that the mail belongs to, of those that are `known` by name; what says most comes first."""
        nearest = next((known[name] for name in self.parents if name in known), None)
        ways = [nearest, known.get(self.own), *(known.get(name) for name in (*self.beside, *self.near))]
        return list(dict.fromkeys(thread for thread in ways if thread is not None))


def lock_mail() -> None:
    """Wait until no other process joins threads or changes series, and keep it so until this transaction ends.

    DomainError, not a permanent one, where that takes too long.
    """
    wait_for_lock(MAIL_LOCK, seconds=_PATIENCE_SECONDS)


def names_of(message: Message) -> Names:
    """The names by which a mail, stored or not yet, finds its thread."""
    own = message.message_id
    named = dict.fromkeys([message.in_reply_to, *reversed(message.references)])
    parents = tuple(name for name in named if name and name != own)
    marks = parse_subject(message.subject)
    posted = message.kind in POSTED
    if parents or not posted or marks.index is None or message.sent_at is None:
        return Names(own, parents, posted=posted)
    shared, *around = _slots(
        f"{message.sender_address.lower()} v{marks.version}.{marks.minor} of {marks.total}", message.sent_at
    )
    return Names(own, beside=(shared,), near=tuple(around), posted=True)


def may_be_cover(message: Message) -> bool:
    """Whether an unmarked text could be somebody's cover letter, as far as its headers tell."""
    marks = parse_subject(message.subject)
    return not marks.reply and (marks.patch or not (message.in_reply_to or message.references))


def may_change_series(message: Message) -> bool:
    """An answer changes nothing of a series but its trailers, and a mail that cannot be read changes nothing."""
    if message.kind == Message.Kind.OTHER:
        return bool(message.trailers) or may_be_cover(message)
    return message.kind in POSTED


def _slots(what: str, sent_at: datetime) -> tuple[str, str, str]:
    """A name for the minutes around `sent_at`, then those before and after. The spaces keep them apart from ids."""
    slot = int(sent_at.timestamp() // SENT_TOGETHER.total_seconds())
    return f"{what} at {slot}", f"{what} at {slot - 1}", f"{what} at {slot + 1}"


def join_thread(names: Names, *, stale: bool) -> int:
    """The thread of a mail with these names, made or joined at need. The caller holds the lock (`lock_mail`).

    `stale`: the mail may change a series.
    """
    rows = ThreadMember.objects.filter(name__in=names.looked_up)
    known = dict(rows.values_list("name", "thread_id"))
    found = names.found_in(known)
    if not names.posted:
        found = [*found[:1], *(thread for thread in found[1:] if not _has_postings(thread))]
    found = _with_room(_grouped(found))
    if not found:
        thread = Thread.objects.create(stale=stale).pk
        # What answers this mail comes after it, not into a thread that takes no more.
        ThreadMember.objects.filter(name__in=[names.own, *names.beside]).update(thread=thread)
    else:
        thread = _merge(set(found))
        # A mail that others named before it came can connect what they say.
        if stale or len(found) > 1 or names.own in known:
            Thread.objects.filter(pk=thread, stale=False).update(stale=True)
    ThreadMember.objects.bulk_create(
        ThreadMember(name=name, thread_id=thread) for name in names.owned if name not in known
    )
    return thread


def _has_postings(thread: int) -> bool:
    return Message.objects.filter(thread=thread, kind__in=POSTED).exists()


# What was noted of threads that could not be grouped begins with it, and ends with the thread.
FAILED_THREAD = "sources.group_thread "


def _grouped(threads: list[int]) -> list[int]:
    """Without those that were given up; one that has failed is joined to no other, whose mails would wait with it.

    Whoever posts in a thread may name a mail that he writes later, as an answer in somebody else's.
    """
    failed = failures(FAILED_THREAD) if threads else {}
    times = {pk: failed[key][0] for pk in threads if (key := f"{FAILED_THREAD}{pk}") in failed}
    left = [pk for pk in threads if times.get(pk, 0) < MOST_BEGUN]
    return left if len(left) < 2 else [pk for pk in left if pk not in times] or left[:1]  # noqa: PLR2004 (one and another)


def _with_room(threads: list[int]) -> list[int]:
    """Those of them, in their order, that together are not too long."""
    found, total = [], 0
    for pk in threads:
        size = ThreadMember.objects.filter(thread=pk)[:_LONGEST].count()
        if total + size < _LONGEST:
            found.append(pk)
            total += size
    return found


def _merge(threads: set[int]) -> int:
    kept = _largest(threads)
    gone = threads - {kept}
    if not gone:
        return kept
    ThreadMember.objects.filter(thread__in=gone).update(thread=kept)
    Message.objects.filter(thread__in=gone).update(thread=kept)
    Thread.objects.filter(pk__in=gone).delete()
    return kept


def _largest(threads: set[int]) -> int:
    """Counting goes on only while two are left, so that it costs no more than re-pointing the smaller one."""
    left, limit = sorted(threads), _FIRST_COUNT
    while len(left) > 1:
        sizes = {pk: ThreadMember.objects.filter(thread=pk)[:limit].count() for pk in left}
        large = [pk for pk in left if sizes[pk] == limit]
        left, limit = large or [max(left, key=lambda pk: (sizes[pk], -pk))], limit * _COUNT_STEP
    return left[0]


log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class StoredMail:
    """`new` is False where the same mail was there already."""

    message: Message
    new: bool


def blob_id(raw: bytes) -> str:
    """The id that git gives to this content, so that a mail is the same one from a file and from an archive."""
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class ReadMail:
    """A mail that is read, but not stored."""

    raw: bytes
    blob: str
    received_at: datetime
    parsed: ParsedMail


def store_message(
    *, mailing_list: MailingList, raw: bytes, blob: str = "", received_at: datetime | None = None
) -> Message:
    """Store one mail, once, and join it to its thread. Never raises because of what the mail holds.

    `received_at` is when the archive took it; now, where there is no archive. Series are made of it by `group_stale`.
    """
    return keep_parsed(mailing_list=mailing_list, mail=read_mail(raw, blob=blob, received_at=received_at)).message


def read_mail(raw: bytes, *, blob: str = "", received_at: datetime | None = None) -> ReadMail:
    """Read a mail of whatever bytes; nothing is asked of the database."""
    blob, received_at = blob or blob_id(raw), received_at or clock.now()
    return ReadMail(raw, blob, received_at, parse_mail(raw, blob=blob, received_at=received_at))


def keep_parsed(*, mailing_list: MailingList, mail: ReadMail) -> StoredMail:
    """As `store_message` with a mail that is read already, telling also whether it is new."""
    try:
        return _kept(mailing_list, mail)
    except DataError as error:
        # One mail that no rule foresaw must not stop the list: it stays, and a person can read why.
        reason = Because.UNUSABLE(f"the database does not take what was read of it: {str(error).splitlines()[0][:500]}")
        log.exception("message_not_storable", list=mailing_list.name, blob=mail.blob)
        nothing = ParsedMail(
            f"{mail.blob}@no-message-id.invalid", "unusable", reason, Marks(""), sent_at=mail.received_at
        )
        return _kept(mailing_list, replace(mail, parsed=nothing))


def _kept(mailing_list: MailingList, mail: ReadMail) -> StoredMail:
    with transaction.atomic():
        lock_mail()
        ours = Message.objects.filter(mailing_list=mailing_list, message_id=mail.parsed.message_id, blob=mail.blob)
        if known := ours.defer(*Message.LONG).first():
            return StoredMail(known, new=False)
        message = _message(mailing_list, mail)
        names = names_of(message)
        message.thread_id = join_thread(names, stale=may_change_series(message))
        message.save(force_insert=True)
        _note_paths(message.pk, message.paths)
    log.info("message_stored", list=mailing_list.name, message_id=message.message_id, kind=message.kind)
    return StoredMail(message, new=True)


def _message(mailing_list: MailingList, mail: ReadMail) -> Message:
    parsed = mail.parsed
    message = Message(
        mailing_list=mailing_list,
        message_id=parsed.message_id,
        blob=mail.blob,
        raw=mail.raw,
        kind=parsed.kind,
        **parsed.reason.columns(),
        subject=parsed.subject,
        sender_name=parsed.sender_name,
        sender_address=parsed.sender_address,
        sent_at=parsed.sent_at,
        received_at=mail.received_at,
        in_reply_to=parsed.in_reply_to,
        references=list(parsed.references),
        trailers=_trailers(parsed),
    )
    if message.kind in POSTED or (message.kind == Message.Kind.OTHER and may_be_cover(message)):
        _learn(message, parsed)
    return message


# What reading a mail found of a series and of a patch, by the names of columns.
_OF_SERIES = ("recipients", "base_commit", "change_id", "prerequisites")
_OF_PATCH = ("author_name", "author_address", "files", "insertions", "deletions", "paths")
# As long as the column, and more than anybody gives in one mail; in characters of all of them, too.
_LONGEST_TRAILER = 1000
_MOST_TRAILERS = 200
_MOST_OF_TRAILERS = 8 * 1024
# Treewide series go to a few hundred people.
_MOST_OF_RECIPIENTS = 16 * 1024
# More than is ever applied (`MAX_FILES` of screening), and no path of a kernel is longer.
_MOST_PATHS = 20_000
_LONGEST_PATH = 1024
_MOST_OF_PATHS = 1024 * 1024
_PATHS_AT_ONCE = 2000


def _learn(message: Message, parsed: ParsedMail) -> None:
    """Note on a mail that can be part of a series what it says of that, and of a patch what it changes."""
    message.recipients = within(parsed.recipients, _MOST_OF_RECIPIENTS)
    message.base_commit, message.change_id = parsed.base_commit, parsed.change_id
    message.prerequisites = list(parsed.prerequisites)
    if message.kind == Message.Kind.PATCH:
        diff = parsed.diff
        message.author_name, message.author_address = parsed.author_name, parsed.author_address
        message.files, message.insertions, message.deletions = len(diff.files), diff.insertions, diff.deletions
        message.paths = _paths(diff)


def _paths(diff: Diff) -> list[str]:
    """All or none: who maintains some of the files must not be taken for one who maintains all."""
    found = list(diff.paths)
    short = len(found) <= _MOST_PATHS and all(len(path) <= _LONGEST_PATH for path in found)
    return found if short and sum(map(len, found)) <= _MOST_OF_PATHS else []


def _note_paths(message: int, paths: Iterable[str]) -> None:
    beginnings = dict.fromkeys(path[: ChangedPath.LONGEST] for path in paths)
    ChangedPath.objects.bulk_create(
        (ChangedPath(message_id=message, beginning=one) for one in beginnings), batch_size=_PATHS_AT_ONCE
    )


def _trailers(parsed: ParsedMail) -> list[str]:
    kept = (trailer for trailer in parsed.trailers[:_MOST_TRAILERS] if len(trailer) <= _LONGEST_TRAILER)
    return within(kept, _MOST_OF_TRAILERS)


def within(texts: Iterable[str], longest: int) -> list[str]:
    """The first of these texts, as long as they have `longest` characters together."""
    lengths = accumulate(map(len, texts := list(texts)))
    return [text for text, length in zip(texts, lengths, strict=True) if length <= longest]


def _values(message: Message, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names}


@transaction.atomic
def forget_message(*, mailing_list: MailingList, blob: str) -> None:
    """The archive was asked to remove this mail: its content goes here too.

    The row stays with Message-ID and subject, so that threads and finished series still explain themselves. A series
    that has not been applied yet is refused once all its mails are there; one that has keeps its commits.
    """
    lock_mail()
    there = Message.objects.filter(mailing_list=mailing_list, blob=blob).exclude(kind=Message.Kind.DELETED)
    deleted = Because.DELETED("deleted from the archive")
    for message in there.defer(*Message.LONG):
        left = {"kind_before": message.kind, **_left(message), **deleted.columns()}
        Message.objects.filter(pk=message.pk).update(kind=Message.Kind.DELETED, raw=b"", trailers=[], **left)
        if "paths" in left:
            ChangedPath.objects.filter(message=message).delete()
        Patch.objects.filter(message=message).exclude(series__state=Series.State.APPLIED).update(patch_id="")
        if may_change_series(message):
            _mark_stale(message)
        refuse_deleted(message)
        log.info("message_deleted", list=mailing_list.name, message_id=message.message_id)


def _left(message: Message) -> dict[str, Any]:
    """What stays of what it said: of a patch its sender, and what it changes where commits were made of it."""
    nothing = Message()
    if message.kind == Message.Kind.PATCH:
        nothing.author_name, nothing.author_address = message.sender_name, message.sender_address
    is_applied = message.patches.filter(series__state=Series.State.APPLIED).exists()
    return _values(nothing, _OF_SERIES if is_applied else (*_OF_SERIES, *_OF_PATCH))


@transaction.atomic
def restore_message(*, message: Message, mail: ReadMail) -> None:
    """The archive took a mail again that it had deleted: it was no spam after all.

    A series that was refused for that has its content again, and a person may approve it.
    """
    lock_mail()
    again = _message(message.mailing_list, mail)
    deleted = Message.objects.filter(pk=message.pk, kind=Message.Kind.DELETED)
    names = ("kind", "raw", "trailers", "reason", "reason_code", *_OF_SERIES, *_OF_PATCH)
    if deleted.update(kind_before="", **_values(again, names)):
        ChangedPath.objects.filter(message=message).delete()
        _note_paths(message.pk, again.paths)
    for series in Series.objects.filter(pk__in=message.patches.values("series")) | Series.objects.filter(cover=message):
        Series.objects.filter(pk=series.pk).exclude(state=Series.State.APPLIED).update(**announced_by(series))
    _mark_stale(message)
    log.info("message_restored", list=message.mailing_list.name, message_id=message.message_id)


def _mark_stale(message: Message) -> None:
    Thread.objects.filter(messages=message.pk).update(stale=True)
