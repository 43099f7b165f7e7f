"""Watching list archives: fetch the epochs, then read on in each where the last transaction ended.

And forgetting the mails that a rewritten history has taken away.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from django.db import transaction

from server.core import clock
from server.core.access.tries import MOST_BEGUN, counted
from server.core.addresses import without_credentials
from server.core.database import BUSY, advisory_lock
from server.core.errors import DomainError
from server.core.programs.git import GitError, ObjectReader
from server.core.reasons import Because
from server.sources.archives.epochs import (
    ArchiveStep,
    EpochCopy,
    EpochPlace,
    archive_folder,
    find_epochs,
    purged_blobs,
)
from server.sources.messages.storage import ReadMail, forget_message, keep_parsed, read_mail, restore_message
from server.sources.models import Epoch, MailingList, Message
from server.sources.polls import FETCH_SECONDS, is_due, note_failure, note_success, unforeseen_noted
from server.sources.series.formation import group_stale

log = structlog.get_logger(__name__)

# So many mails are a minute of work; a first read goes on with the next wake-up.
MAILS_AT_ONCE: Final = 2000
# Comparing a rewritten history with all other epochs takes about so long; it is not begun with less.
_SETTLE_SECONDS = 60.0
# Grouping is given so long after the rest, in steps of so many threads. What is left is the sweep's.
_GROUP_SECONDS = 20.0
_THREADS_AT_ONCE = 50
# Less makes no sense for a fetch.
_LEAST_SECONDS = 10.0
# Packing the largest epochs anew takes minutes.
_CLEAN_SECONDS = 900.0


@dataclass(frozen=True)
class ReadResult:
    """How many commits were passed, mails stored, mails deleted and threads grouped.

    `more`: commits are waiting. `busy`: another process reads this list. `error`: why it could not be read (to its
    end), also noted on the list.
    """

    commits: int = 0
    stored: int = 0
    deleted: int = 0
    grouped: int = 0
    more: bool = False
    busy: bool = False
    error: str = ""


def read_list(
    *,
    mailing_list: MailingList,
    limit: int | None = MAILS_AT_ONCE,
    timeout: float = FETCH_SECONDS,
    stop: Callable[[], bool] = lambda: False,
) -> ReadResult:
    """Fetch the epochs of a list and store what is new, oldest first, at most `limit` commits.

    `timeout` is for each fetch, in seconds, and with a `limit` for all of the round; `stop` is asked before each mail.
    A failure is recorded on the list and not raised. Killed at any point, the next call goes on where the last
    transaction ended. Does nothing while another process reads the same list.
    """
    with advisory_lock(f"sources.list.{mailing_list.pk}") as free, unforeseen_noted(mailing_list):
        if not free:
            log.info("list_read_busy", list=mailing_list.name)
            return ReadResult(busy=True)
        end = math.inf if limit is None else time.monotonic() + timeout
        reading = _Round(mailing_list, limit, timeout, stop, end)
        try:
            reading.run()
        except (DomainError, OSError) as error:
            # Whoever waits for other processes does not fail: the next round goes on.
            is_busy = isinstance(error, DomainError) and error.code == BUSY
            (reading.complaints if is_busy else reading.errors).append(str(error))
        if not (reading.more and stop()):
            # At the end, and not before: a series that looks whole keeps its patches, so whole threads should be seen.
            reading.grouped = _grouped(end + _GROUP_SECONDS)
        if reading.errors:
            note_failure(mailing_list, "; ".join(reading.errors))
        else:
            note_success(mailing_list, "; ".join(reading.complaints))
        return reading.result()


def _grouped(end: float) -> int:
    """How many threads were grouped until none was left, or it was time to end."""
    done = 0
    while time.monotonic() < end:
        some = group_stale(limit=_THREADS_AT_ONCE, seconds=end - time.monotonic())
        done += some
        if some < _THREADS_AT_ONCE:
            break
    return done


@dataclass
class Tally:
    """What a reading did. `commits` are those passed, `stored` and `deleted` count mails."""

    commits: int = 0
    stored: int = 0
    deleted: int = 0


@dataclass
class _Round:
    """One reading of all epochs, under the lock of the list."""

    mailing_list: MailingList
    limit: int | None
    timeout: float
    stop: Callable[[], bool]
    # Of time.monotonic(): a worker's time is bounded, and a round that was cut off would count as a failure.
    end: float
    tally: Tally = field(default_factory=Tally)
    errors: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    grouped: int = 0
    more: bool = False

    def run(self) -> None:
        known = {epoch.number: epoch for epoch in self.mailing_list.epochs.all()}
        folder = archive_folder(self.mailing_list.name)
        places = find_epochs(self.mailing_list.url, known=known.keys(), cwd=folder)
        self._miss(known, places)
        for place in places:
            if self.tally.commits and self._left() < self.timeout / 2:
                # Too little time to fetch one more.
                self.more = True
                return
            if self._is_too_old(place, known):
                continue
            copy = self._fetched(place, known.get(place.number))
            if not copy.head():
                continue
            epoch, _ = Epoch.objects.get_or_create(mailing_list=self.mailing_list, number=place.number)
            known[place.number] = epoch
            if not self._read(epoch, copy):
                self.more = True
                return
        if not self.errors:
            self._settle(known)

    def _left(self) -> float:
        return self.end - time.monotonic()

    def _is_over(self) -> bool:
        return self.stop() or self._left() <= 0

    def _miss(self, known: dict[int, Epoch], places: tuple[EpochPlace, ...]) -> None:
        """New mails are in the newest epoch: without it the list would fall silent and look well."""
        if known and max(known) not in {place.number for place in places}:
            self.complaints.append(f"epoch {max(known)}, read before, is not in the archive any more")

    def _is_too_old(self, place: EpochPlace, known: dict[int, Epoch]) -> bool:
        since = self.mailing_list.since
        return bool(since and place.modified and place.modified < since and place.number not in known)

    def _fetched(self, place: EpochPlace, epoch: Epoch | None) -> EpochCopy:
        """An epoch that was read before and is broken does not stop the others; one never read must come before them.

        For a later epoch may delete mails of it. A remote that hangs is not asked for the next one.
        """
        copy = EpochCopy.of(self.mailing_list.name, place.number)
        try:
            copy.fetch(place, position=epoch.last_commit if epoch else "", timeout=self._patience())
        except DomainError as error:
            if not epoch or not epoch.last_commit or error.code == "git-timeout":
                raise
            self.errors.append(error.message)
        return copy

    def _patience(self) -> float:
        return max(min(self.timeout, self._left()), _LEAST_SECONDS)

    def _read(self, epoch: Epoch, copy: EpochCopy) -> bool:
        """False when it was stopped, or the limit reached, before the end."""
        reader = EpochReader(epoch, copy, self.tally, self._is_over)
        try:
            steps = self._waiting(epoch, copy, reader)
            some = steps if self.limit is None else steps[: max(self.limit - self.tally.commits, 0)]
            if not reader.read(some):
                return False
        except MovedError:
            log.warning("epoch_moved_elsewhere", list=self.mailing_list.name, epoch=epoch.number)
            return False
        return len(some) == len(steps)

    def _waiting(self, epoch: Epoch, copy: EpochCopy, reader: "EpochReader") -> list[ArchiveStep]:
        """What is to be read, oldest first.

        When the position is no ancestor of the head any more, the archive rewrote its history (a purge or an edit): all
        of it is read again. A head that is an ancestor of the position is an archive that was set back, or a mirror
        that is late: what was read stays.
        """
        head, position = copy.head(), epoch.last_commit
        if position and not copy.holds(position, head):
            if copy.holds(head, position):
                log.info("epoch_behind", list=self.mailing_list.name, epoch=epoch.number, head=head)
                return []
            log.warning("epoch_rewritten", list=self.mailing_list.name, epoch=epoch.number, old=position, new=head)
            copy.begin_again(position)
            position, epoch.last_commit, epoch.rewritten_at = "", "", clock.now()
            epoch.save(update_fields=["last_commit", "rewritten_at"])
        steps = copy.steps(head, position) if position != head else []
        if position or not self.mailing_list.since:
            return steps
        first = wanted_from(steps, self.mailing_list.since)
        if steps and first == len(steps):
            reader.move(steps[-1].commit)
        return steps[first:]

    def _settle(self, known: dict[int, Epoch]) -> None:
        """Once all epochs are read to their ends, see what their rewritten histories took away."""
        copies = {number: EpochCopy.of(self.mailing_list.name, number) for number in known}
        for number, copy in copies.items():
            if known[number].rewritten_at and copy.is_read_again:
                if self._left() < _SETTLE_SECONDS:
                    self.more = True
                    return
                others = [other for other in copies.values() if other is not copy]
                seconds = min(_CLEAN_SECONDS, self._left())
                self.tally.deleted += settle_replaced(known[number], copy, others, clean_seconds=seconds)

    def result(self) -> ReadResult:
        tally = self.tally
        errors = without_credentials("; ".join(self.errors))
        return ReadResult(tally.commits, tally.stored, tally.deleted, self.grouped, self.more, error=errors)


def claim_due_lists() -> list[MailingList]:
    """Enabled lists whose poll is due; each is given out once per poll time, whoever asks."""
    with transaction.atomic():
        rows = list(MailingList.objects.select_for_update(skip_locked=True).filter(enabled=True).exclude(url=""))
        due = [row for row in rows if is_due(row, clock.now())]
        MailingList.objects.filter(pk__in=[row.pk for row in due]).update(polled_at=clock.now())
    return due


def find_list(name: str) -> MailingList:
    mailing_list = MailingList.objects.filter(name=name).first()
    if mailing_list is None:
        raise DomainError("unknown-list", f"there is no list {name}")
    return mailing_list


# How many mails one query looks up, to see which are known already.
_AT_A_TIME = 500
# Nothing that was taken before there was any list is believed.
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_CLOCK_SKEW = timedelta(days=1)
# Larger ones stay in the copy of the archive only: no mail server takes them, and they would fill the memory.
_LARGEST_MAIL = 128 * 2**20
# Whatever stands in so few bytes, it is read in time.
_QUICK = 64 * 1024


class MovedError(Exception):
    """Another process moved the position of this epoch."""


@dataclass
class EpochReader:
    """Reads one epoch on from its position. One that is read again from its beginning brings no deleted mail back."""

    epoch: Epoch
    copy: EpochCopy
    tally: Tally
    stop: Callable[[], bool]
    again: bool = False

    def read(self, steps: Sequence[ArchiveStep]) -> bool:
        """Take these steps, oldest first; False when it was stopped before the end.

        Raises MovedError when another process has moved the position.
        """
        self.again = self.copy.is_read_again
        with self.copy.repository.objects() as reader:
            for start in range(0, len(steps), _AT_A_TIME):
                some = steps[start : start + _AT_A_TIME]
                sizes = self.copy.sizes([step.mail for step in some if step.mail])
                for step in self._to_take(some):
                    if self.stop():
                        return False
                    self._take(reader, step, sizes.get(step.mail, 0))
                self.tally.commits += len(some)
        if steps and self.epoch.last_commit != steps[-1].commit:
            self.move(steps[-1].commit)
        return True

    def _to_take(self, steps: Sequence[ArchiveStep]) -> Iterator[ArchiveStep]:
        """Those that have something to do: a known mail has, if it is deleted before its turn."""
        known = self._known({step.mail for step in steps if step.mail})
        for step in steps:
            known.discard(step.deleted)
            if step.mail not in known:
                yield step

    def _known(self, blobs: set[str]) -> set[str]:
        rows = Message.objects.filter(mailing_list_id=self.epoch.mailing_list_id, blob__in=blobs)
        if not self.again:
            rows = rows.exclude(kind=Message.Kind.DELETED)
        return set(rows.values_list("blob", flat=True))

    def _take(self, reader: ObjectReader, step: ArchiveStep, size: int) -> None:
        """One mail and the new position, or neither."""
        # Parsed before the transaction, which holds a lock that others wait for.
        mail = self._mail(reader, step, size) if step.mail else None
        gone = [step.deleted] if step.deleted else []
        if step.stands_for_purge:
            gone = purged_blobs(reader, step.commit)
        with transaction.atomic():
            self.move(step.commit)
            stored = self._store(mail) if mail else False
            deleted = sum(forget(self.epoch.mailing_list, blob) for blob in gone)
        self.tally.stored += stored
        self.tally.deleted += deleted

    def move(self, commit: str) -> None:
        here = Epoch.objects.filter(pk=self.epoch.pk, last_commit=self.epoch.last_commit)
        if here.update(last_commit=commit) != 1:
            raise MovedError
        self.epoch.last_commit = commit

    def _mail(self, reader: ObjectReader, step: ArchiveStep, size: int) -> ReadMail:
        taken_at = _believable(step.taken_at)
        if size > _LARGEST_MAIL:
            told = f"{size // 2**20} MB, more than any mail has: only the copy of the archive holds it"
            return self._unread(step, told)
        found = reader.read(step.mail)
        if found is None:
            # Passed over, it would never be read: the copy is damaged, as by a disk. Fetched again, it is whole.
            where = f"epoch {self.epoch.number}: {self.copy.repository.git_dir} has lost mail {step.mail}"
            raise GitError("mail-lost", f"{where} of commit {step.commit}; remove that folder to have it fetched again")
        if size <= _QUICK:
            return read_mail(found[1], blob=found[0], received_at=taken_at)
        # Killed for it again and again, a worker would read no other mail of this list.
        with counted(f"sources.read_mail {self.epoch.mailing_list_id} {step.mail}", alone=True) as may_be_read:
            if may_be_read:
                return read_mail(found[1], blob=found[0], received_at=taken_at)
        return self._unread(step, f"reading it took more than a worker has, {MOST_BEGUN} times")

    def _unread(self, step: ArchiveStep, reason: str) -> ReadMail:
        mail = read_mail(b"", blob=step.mail, received_at=_believable(step.taken_at))
        return replace(mail, parsed=replace(mail.parsed, kind="unusable", reason=Because.UNUSABLE(reason)))

    def _store(self, mail: ReadMail) -> bool:
        """Whether it is new, or back again."""
        kept = keep_parsed(mailing_list=self.epoch.mailing_list, mail=mail)
        if kept.message.kind == Message.Kind.DELETED and not self.again:
            restore_message(message=kept.message, mail=mail)
            return True
        return kept.new


def _believable(taken_at: datetime) -> datetime | None:
    """The archive's word, or None where its clock cannot have been right."""
    return taken_at if _EARLIEST <= taken_at <= clock.now() + _CLOCK_SKEW else None


def wanted_from(steps: Sequence[ArchiveStep], since: datetime | None) -> int:
    """Index of the first step that is to be read.

    Everything behind the first mail that was taken at `since` or later is, so that a mail with a wrong early date is
    not lost; dates that lie in the future tell nothing.
    """
    if since is None:
        return 0
    latest = clock.now() + _CLOCK_SKEW
    return next((n for n, step in enumerate(steps) if since <= step.taken_at <= latest), len(steps))


# Which mails a rewritten history has really taken away, as a purge or an edit does: their content goes here too.
#
# A remote that is broken, or was set back to an older state, has lost mails as well. It is told apart by what is
# left: a history that still holds a later mail of the old one, with nothing foreign before it, was not cut off and
# grown anew, but written again without some mails.


@dataclass(frozen=True)
class Vanished:
    """Blobs of mails that a history has not any more: taken away on purpose, and just missing."""

    removed: frozenset[str]
    missing: frozenset[str]


def settle_replaced(epoch: Epoch, copy: EpochCopy, others: list[EpochCopy], *, clean_seconds: float) -> int:
    """Forget what vanished with the replaced histories of `copy`, once the new one is read to its end.

    `others` are all other epochs of the list, fetched to their ends: a mail may have moved there. What was purged
    leaves the disk now, if that takes less than `clean_seconds`, else at upkeep. Returns how many mails lost their
    content. Killed anywhere, the next call does the rest.
    """
    forgotten = 0
    for commit in copy.replaced():
        if not copy.holds(commit, copy.head()):
            forgotten += _forget_vanished(epoch, copy, others, commit)
    _restore_returned(epoch.mailing_list, sorted([copy, *others], key=lambda one: one.number))
    # Upkeep that packs the copy at this moment could keep what was purged; then the next round lets go of it.
    with advisory_lock(f"sources.tend.{copy.repository.git_dir}") as free:
        if free:
            copy.end_again(epoch.last_commit, seconds=clean_seconds)
    return forgotten


def _forget_vanished(epoch: Epoch, copy: EpochCopy, others: list[EpochCopy], old_head: str) -> int:
    old, new = copy.steps(old_head), copy.steps(copy.head())
    changed = {step.mail for step in old} ^ {step.mail for step in new}
    found = vanished(old, new, _message_ids(epoch.mailing_list, changed))
    removed, missing = found.removed, found.missing
    for other in others if removed or missing else []:
        there = {step.mail for step in other.steps(other.head())} if other.head() else set()
        removed, missing = removed - there, missing - there
    if missing:
        name = epoch.mailing_list.name
        log.warning("mails_missing_in_archive", list=name, epoch=epoch.number, old=old_head, kept=len(missing))
    return sum(forget(epoch.mailing_list, blob) for blob in sorted(removed))


def _restore_returned(mailing_list: MailingList, copies: list[EpochCopy]) -> None:
    """What the archive holds after all has its content again: a history may lack mails for a while by a mistake, and a
    mail that was deleted may have been taken once more.
    """
    dead = Message.objects.filter(mailing_list=mailing_list, kind=Message.Kind.DELETED)
    blobs = set(dead.values_list("blob", flat=True))
    living = _living(copies) if blobs else {}
    for copy in copies:
        back = [blob for blob in blobs if living.get(blob) is copy]
        if not back:
            continue
        log.warning("mails_returned_to_archive", list=mailing_list.name, epoch=copy.number, mails=len(back))
        with copy.repository.objects() as reader:
            for message in dead.filter(blob__in=back):
                if found := reader.read(message.blob):
                    mail = read_mail(found[1], blob=message.blob, received_at=message.received_at)
                    restore_message(message=message, mail=mail)


def _living(copies: list[EpochCopy]) -> dict[str, EpochCopy]:
    """The blobs of all mails that were not deleted after they were last taken, with the epoch that took them last."""
    living: dict[str, EpochCopy] = {}
    for copy in copies:
        for step in copy.steps(copy.head()) if copy.head() else []:
            living.pop(step.deleted, None)
            if step.mail:
                living[step.mail] = copy
    return living


def forget(mailing_list: MailingList, blob: str) -> bool:
    """Take the content of a mail away; False if it was not there."""
    there = Message.objects.filter(mailing_list=mailing_list, blob=blob).exclude(kind=Message.Kind.DELETED).exists()
    if there:
        forget_message(mailing_list=mailing_list, blob=blob)
    return there


def vanished(old: list[ArchiveStep], new: list[ArchiveStep], message_ids: Mapping[str, str]) -> Vanished:
    """Compare two histories of one epoch. `message_ids`: of every mail that only one of them has."""
    was, now = {step.mail for step in old if step.mail}, {step.mail for step in new if step.mail}
    lost = was - now
    # An edit replaces a commit in its place.
    pairs = zip(old, new, strict=False)
    edits = {b.mail: a.mail for a, b in pairs if a.mail in lost and _same_mail(a.mail, b.mail, message_ids)}
    # Where the old history ends in each of the two.
    last_old = max((n for n, step in enumerate(old) if step.mail and step.mail in now), default=-1)
    last_new = max((n for n, step in enumerate(new) if step.mail and step.mail in was), default=-1)
    foreign = any(step.mail and step.mail not in was and step.mail not in edits for step in new[: last_new + 1])
    removed = set(edits.values())
    if not foreign:
        removed |= {step.mail for step in old[: last_old + 1]} & lost
    return Vanished(frozenset(removed), frozenset(lost - removed))


def _same_mail(old: str, new: str, message_ids: Mapping[str, str]) -> bool:
    return bool(new) and new != old and old in message_ids and message_ids[old] == message_ids.get(new)


def _message_ids(mailing_list: MailingList, blobs: set[str]) -> dict[str, str]:
    rows = Message.objects.filter(mailing_list=mailing_list, blob__in=blobs)
    return dict(rows.values_list("blob", "message_id"))
