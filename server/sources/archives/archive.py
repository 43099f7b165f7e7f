"""Watching list archives: fetch the epochs, then read on in each where the last transaction ended."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog
from django.db import transaction

from server.core import clock
from server.core.addresses import without_credentials
from server.core.errors import DomainError
from server.core.locks import BUSY, advisory_lock
from server.sources.archives.epochs import ArchiveStep, EpochCopy, EpochPlace, archive_folder, find_epochs
from server.sources.archives.reader import EpochReader, MovedError, Tally, settle_replaced, wanted_from
from server.sources.models import Epoch, MailingList
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
            (reading.complaints if _is_busy(error) else reading.errors).append(str(error))
        if not (reading.more and stop()):
            # At the end, and not before: a series that looks whole keeps its patches, so whole threads should be seen.
            reading.grouped = _grouped(end + _GROUP_SECONDS)
        if reading.errors:
            note_failure(mailing_list, "; ".join(reading.errors))
        else:
            note_success(mailing_list, "; ".join(reading.complaints))
        return reading.result()


def _is_busy(error: Exception) -> bool:
    return isinstance(error, DomainError) and error.code == BUSY


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

    def _waiting(self, epoch: Epoch, copy: EpochCopy, reader: EpochReader) -> list[ArchiveStep]:
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
