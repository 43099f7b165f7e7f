"""What the database has of one thread: its postings, the answers to them, and the series made of them before."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from django.db.models import Q

from server.sources.mail.postings import Posting, Version, parse_subject, posting_of
from server.sources.mail.series_shape import versions_of
from server.sources.messages.storage import POSTED, may_be_cover, within
from server.sources.models import MailingList, Message, Patch, Series

# More than any real series has; a robot that answers a thousand times must not make every page slow. The patches of a
# series may be hundreds, each with these trailers: their characters are bounded as well.
_MOST = 500
_MOST_OF_PATCH, _MOST_OF_SERIES = 12 * 1024, 48 * 1024
# A way through a discussion ends here, as two mails may well answer each other.
_HIGHEST = 100


@dataclass(frozen=True)
class Answer:
    """`parents` are Message-IDs, nearest first."""

    parents: tuple[str, ...]
    trailers: tuple[str, ...]


def answers_in(thread: int) -> list[Answer]:
    """All answers of a thread that bring trailers, in the order in which they were sent."""
    rows = Message.objects.filter(thread=thread, kind=Message.Kind.OTHER).exclude(trailers=[])
    fields = ("pk", "sender_name", "sender_address", "in_reply_to", "references", "trailers")
    ordered = rows.order_by("sent_at", "message_id", "pk").only(*fields)
    return [
        Answer(tuple(dict.fromkeys([row.in_reply_to, *reversed(row.references)])), tuple(_own_trailers(row)))
        for row in ordered.iterator()
    ]


def _own_trailers(row: Message) -> Iterator[str]:
    """Nobody gives a tag in somebody else's name: address or name must be the sender's."""
    for trailer in row.trailers:
        what, _, person = trailer.lower().partition(":")
        name, bracket, address = person.rpartition("<")
        mine = address.strip("> ") == row.sender_address.lower() or name.strip('" ') == row.sender_name.lower()
        if mine or not bracket or not what.endswith("-by"):
            yield trailer


class Followups:
    """The answers of a thread by the mail that they answer."""

    def __init__(self, answers: Iterable[Answer], parents: Mapping[str, str], posted: frozenset[str]) -> None:
        """`posted` are the Message-IDs of patches and cover letters: an answer is to the nearest one of them.

        `parents` says what each mail answers, for those whose own headers do not reach so far.
        """
        self._by_mail: dict[str, dict[str, None]] = {}
        for answer in answers:
            mail = next((p for p in _upwards(answer, parents) if p in posted), None)
            if mail is not None:
                known = self._by_mail.setdefault(mail, {})
                # Those of a cover letter are gone through for each patch, and no patch gets more.
                if len(known) < _MOST:
                    known.update(dict.fromkeys(answer.trailers))

    def to(self, message_id: str) -> list[str]:
        """The trailers that answers to this mail brought, each once."""
        return list(self._by_mail.get(message_id, ()))

    def of_patch(self, message: Message, cover: Message | None) -> list[str]:
        """A patch's own trailers, then those of answers to it and to the cover letter."""
        answered = [*self.to(message.message_id), *(self.to(cover.message_id) if cover else ())]
        return within(list(dict.fromkeys([*message.trailers, *answered]))[:_MOST], _MOST_OF_PATCH)

    def of_series(self, patches: Iterable[list[str]], cover: Message | None) -> list[str]:
        """All trailers of the patches (as `of_patch` gives them) and of answers to the cover letter."""
        answered = self.to(cover.message_id) if cover else []
        return within(list(dict.fromkeys([*chain.from_iterable(patches), *answered]))[:_MOST], _MOST_OF_SERIES)


def _upwards(answer: Answer, parents: Mapping[str, str]) -> Iterator[str]:
    yield from answer.parents
    above = answer.parents[0]
    for _ in range(_HIGHEST):
        if not (above := parents.get(above, "")):
            return
        yield above


# Mails that may be anybody's, among others of the same sender that are proved.
#
# Whoever writes somebody's address on a mail must not change what that person's own mails are: their number, what
# they replace, or that they are whole. Until senders are proved nobody can tell; from then on what is not proved is
# looked at like another person's, and a held series that is whole without it goes on without it.


def is_proved(mail: Message) -> bool:
    return mail.mailing_list.proof == MailingList.Proof.ARCHIVE or mail.authentic is True


def doubted_mails(messages: Mapping[int, Message], held: Iterable[set[int]]) -> set[int]:
    """Those of `messages` that are not proved, of senders who have proved others; `held` are the mails of held series.

    What is not checked yet is among them only while a held series has mails of both kinds: whoever forged one of these
    could else send the next before that is found out.
    """
    proved = {_sender(m) for m in messages.values() if is_proved(m)}
    contested = {sender for mails in held for sender in _contested(messages, mails)}
    loose = (m for m in messages.values() if not is_proved(m) and _sender(m) in proved)
    return {m.pk for m in loose if m.authentic is False or _sender(m) in contested}


def is_whole_without_doubted(
    messages: Mapping[int, Message], mails: set[int], patches: set[int], others: set[int], versions: Iterable[Version]
) -> bool:
    """Whether a held series of these `mails`, some of them `patches`, is a whole version without those not proved.

    `versions` are made with doubt. Nothing new comes in by that, and no mail of `others`; where a place would be free,
    a person decides about the series as it is.
    """
    if not _contested(messages, mails):
        return False
    proved = {pk for pk in patches & messages.keys() if is_proved(messages[pk])}
    for version in versions:
        own = {p.key for p in version.postings}
        whole = version.complete and proved <= own | {p.key for p in version.carried}
        if whole and own < mails and not own & others:
            return all(is_proved(messages[pk]) for pk in own)
    return False


def _contested(messages: Mapping[int, Message], mails: set[int]) -> set[str]:
    """The senders who proved some of these mails, but not all, where all are checked."""
    known = [messages[pk] for pk in mails & messages.keys()]
    if any(m.authentic is None and not is_proved(m) for m in known):
        return set()
    return {_sender(m) for m in known if is_proved(m)} & {_sender(m) for m in known if not is_proved(m)}


def _sender(mail: Message) -> str:
    return mail.sender_address.lower()


State = Series.State
_COLUMNS = (
    "pk",
    "mailing_list_id",
    "message_id",
    "blob",
    "kind",
    "kind_before",
    "reason",
    "reason_code",
    "subject",
    "sender_name",
    "sender_address",
    "sent_at",
    "received_at",
    "in_reply_to",
    "references",
    "trailers",
    "base_commit",
    "change_id",
    "prerequisites",
    "authentic",
)


@dataclass
class SeriesRow:
    """A series with its patches by index. `open`: mails may still be added and moved.

    `released`: it is held with mails that are nobody's in particular, and whole without them.
    """

    series: Series
    patches: dict[int, Patch]
    released: bool = False

    @property
    def open(self) -> bool:
        incomplete = self.series.state == State.INCOMPLETE or self.released
        # One that was replaced before it was whole is still filled, so that the order of arrival does not matter.
        return incomplete or (self.series.state == State.SUPERSEDED and len(self.patches) < self.series.total)

    @property
    def posted(self) -> set[int]:
        return {patch.message_id for patch in self.patches.values()}

    @property
    def mails(self) -> set[int]:
        return self.posted | {self.series.cover_id} if self.series.cover_id else self.posted


class SlowThreadError(Exception):
    """A thread took longer than any may."""


@dataclass
class ThreadRows:
    """`messages` are all mails that may be part of a series, by key; `copies` are those that stand for another one.

    `unproved` are cover letters that came when their series had been checked, and whose senders are not proved. `roots`
    are all series by the mail that each begins with, those that are written in this round among them. `made` are the
    postings of all `messages`, each made once: whoever looks for the place of one mail asks for many others.
    `end`, of time.monotonic(): nothing goes on with the thread after it; after `pause` nothing new is begun, where
    something was done.
    """

    messages: dict[int, Message]
    series: list[SeriesRow]
    copies: set[int]
    versions: tuple[Version, ...]
    followups: Followups
    settled: set[int] = field(default_factory=set)
    unproved: set[int] = field(default_factory=set)
    roots: dict[int, SeriesRow] = field(default_factory=dict)
    made: dict[int, Posting] = field(default_factory=dict)
    end: float = math.inf
    pause: float = math.inf

    @classmethod
    def read(cls, thread: int, *, end: float = math.inf, pause: float = math.inf) -> "ThreadRows":
        messages = {m.pk: m for m in _postings(thread)}
        series = _series(thread)
        settled = {pk for row in series if not row.open for pk in row.mails}
        copies = _copies(messages.values(), settled)
        parents = _parents(thread)
        held = [row for row in series if row.series.state == State.HELD]
        doubted = doubted_mails(messages, (row.mails for row in held))
        made = {pk: _posting(m, doubted=pk in doubted) for pk, m in messages.items()}
        found = versions_of((posting for pk, posting in made.items() if pk not in copies), parents)
        for row in held if doubted else ():
            others = {pk for other in series if other is not row and not other.open for pk in other.mails}
            row.released = is_whole_without_doubted(messages, row.mails, row.posted, others, found)
        settled = {pk for row in series if not row.open for pk in row.mails}
        posted = frozenset(m.message_id for m in messages.values() if _kind(m) in POSTED)
        followups = Followups(answers_in(thread), parents, posted)
        rows = cls(messages, series, copies, found, followups, settled, made=made, end=end, pause=pause)
        for row in series:
            rows.note_root(row)
        return rows

    def note_root(self, row: SeriesRow) -> None:
        mails = (self.messages[pk] for pk in row.mails if pk in self.messages)
        for mail in mails:
            if mail.message_id == row.series.first_message_id:
                self.roots[mail.pk] = row

    def rerolled(self, version: Version) -> SeriesRow | None:
        """The series that `version` is a partial re-roll of, as it is stored by now."""
        known = next((row for key in version.rerolls if (row := self.roots.get(key)) and row.series.pk), None)
        if known or not version.rerolls:
            return known
        # One that is settled may hold other mails on the places of the first ones.
        replaced = {posting.key for posting in version.replaced}
        older = [row for row in self.series if replaced <= row.mails and version.root.key not in row.mails]
        return min(older, key=lambda row: (row.series.number, row.series.submitted_at, row.series.pk), default=None)

    def check_time(self) -> None:
        """Asked wherever something is done for each mail or series: others wait for the lock."""
        if time.monotonic() > self.end:
            raise SlowThreadError

    def is_late(self) -> bool:
        return time.monotonic() > self.pause

    def posting(self, message: Message) -> Posting:
        return self.made[message.pk]

    def settle(self, mail: int, *, instead_of: int) -> None:
        """The place of a settled mail has another one from now on."""
        self.settled = self.settled - {instead_of} | {mail}
        if mail in self.copies:
            self.copies = self.copies - {mail} | {instead_of}

    def is_deleted(self, mail: int) -> bool:
        return self.messages[mail].kind == Message.Kind.DELETED


def _postings(thread: int) -> list[Message]:
    """Patches and cover letters, also deleted ones, and texts that could be a cover letter without a mark."""
    posted = Q(kind__in=POSTED) | Q(kind=Message.Kind.DELETED, kind_before__in=POSTED)
    other = Q(kind=Message.Kind.OTHER) | Q(kind=Message.Kind.DELETED, kind_before=Message.Kind.OTHER)
    rooted = other & (Q(in_reply_to="", references=[]) | Q(subject__contains="[") & ~Q(subject__istartswith="re:"))
    found = Message.objects.filter(posted | rooted, thread=thread).only(
        *_COLUMNS, "mailing_list__proof", "mailing_list__address", "mailing_list__name"
    )
    found = found.select_related("mailing_list").order_by("pk")
    return [m for m in found if _kind(m) in POSTED or may_be_cover(m)]


def _parents(thread: int) -> dict[str, str]:
    """What each mail of the thread answers, discussion included."""
    answers = Message.objects.filter(thread=thread).exclude(in_reply_to="").order_by("-pk")
    return dict(answers.values_list("message_id", "in_reply_to"))


def _kind(message: Message) -> str:
    """What a mail is, or was before it was deleted."""
    return message.kind_before if message.kind == Message.Kind.DELETED else message.kind


def _posting(message: Message, *, doubted: bool = False) -> Posting:
    return posting_of(
        key=message.pk,
        message_id=message.message_id,
        in_reply_to=message.in_reply_to,
        references=message.references,
        sender=message.sender_address,
        sent_at=message.sent_at or message.received_at,
        marks=parse_subject(message.subject),
        naked=_kind(message) not in POSTED,
        received_at=message.received_at,
        doubted=doubted,
    )


def _series(thread: int) -> list[SeriesRow]:
    """All series that hold a mail of the thread, the oldest row first."""
    patched = Patch.objects.filter(message__thread=thread)
    touched = Series.objects.filter(Q(pk__in=patched.values("series")) | Q(cover__thread=thread)).order_by("pk")
    rows = {series.pk: SeriesRow(series, {}) for series in touched}
    for patch in Patch.objects.filter(series__in=rows):
        rows[patch.series_id].patches[patch.index] = patch
    return list(rows.values())


def _copies(messages: Iterable[Message], settled: set[int]) -> set[int]:
    """Mails that came over several lists: all but the first of those with one Message-ID, subject and sender.

    Footers of lists may differ. The Message-ID alone proves nothing: git gives the same one to an unchanged patch of
    two versions that were made in one second, and anybody can send somebody's under his own name. A list that puts its
    own address into From makes copies of what came with the author's, but nothing is a copy of these.
    """
    first: dict[tuple[str, str], dict[str, Message]] = {}
    copies: set[int] = set()

    # A settled series keeps the copy that it was made of.
    def order(m: Message) -> tuple[bool, bool, object, int, int]:
        return m.pk not in settled, _is_rewritten(m), m.received_at, m.mailing_list_id, m.pk

    for message in sorted(messages, key=order):
        senders = first.setdefault((message.message_id, message.subject), {})
        is_other = message.pk not in settled and _is_rewritten(message) and senders
        if is_other or senders.setdefault(message.sender_address.lower(), message) is not message:
            copies.add(message.pk)
    return copies


def _is_rewritten(message: Message) -> bool:
    return bool(message.sender_address) and message.sender_address.lower() == message.mailing_list.address.lower()
