"""Which thread a mail belongs to: mails that name each other are one thread, whatever list brought them.

Every Message-ID that a thread has or mentions is a row, so that a mail finds its thread by its own few names, however
long the thread is. A mail may connect two threads: that of its nearest parent, and the one that knows it already, which
for a mail that is no posting must hold none; the smaller one is re-pointed. Anybody can name any number of mails:
threads stay apart where together they would be longer than people make them, and one that is so long takes no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from server.core.locks import wait_for_lock
from server.sources.mail.parser import parse_mail
from server.sources.mail.subjects import parse_subject
from server.sources.mail.threads import SENT_TOGETHER
from server.sources.messages.facts import kept_trailers
from server.sources.models import Message, Thread, ThreadMember

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
    found = _with_room(found)
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


def adopt_messages(limit: int = 500) -> int:
    """Give threads to mails that have none, as those stored by older versions; returns to how many."""
    waiting = Message.objects.filter(thread=None).order_by("pk").values_list("pk", flat=True)
    return sum(_adopt(pk) for pk in waiting[:limit])


@transaction.atomic
def _adopt(pk: int) -> bool:
    lock_mail()
    message = Message.objects.filter(pk=pk, thread=None).first()
    if message is None:
        return False
    message.trailers = kept_trailers(parse_mail(bytes(message.raw), blob=message.blob, received_at=message.received_at))
    message.thread_id = join_thread(names_of(message), stale=may_change_series(message))
    message.save(update_fields=["thread", "trailers"])
    return True
