"""Storing the mails of one epoch, and forgetting those that a rewritten history has taken away."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import structlog
from django.db import transaction

from server.core import clock
from server.core.locks import advisory_lock
from server.core.programs.git import GitError, ObjectReader
from server.core.reasons import Because
from server.sources.archives.epochs import ArchiveStep, EpochCopy, purged_blobs
from server.sources.messages.storage import ReadMail, forget_message, keep_parsed, read_mail, restore_message
from server.sources.models import Epoch, MailingList, Message

# Which mails a rewritten history has really taken away, as a purge or an edit does: their content goes here too.
#
# A remote that is broken, or was set back to an older state, has lost mails as well. It is told apart by what is
# left: a history that still holds a later mail of the old one, with nothing foreign before it, was not cut off and
# grown anew, but written again without some mails.

log = structlog.get_logger(__name__)


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


# How many mails one query looks up, to see which are known already.
_AT_A_TIME = 500
# Nothing that was taken before there was any list is believed.
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_CLOCK_SKEW = timedelta(days=1)
# Larger ones stay in the copy of the archive only: no mail server takes them, and they would fill the memory.
_LARGEST_MAIL = 128 * 2**20


class MovedError(Exception):
    """Another process moved the position of this epoch."""


@dataclass
class Tally:
    """What a reading did. `commits` are those passed, `stored` and `deleted` count mails."""

    commits: int = 0
    stored: int = 0
    deleted: int = 0


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
            mail = read_mail(b"", blob=step.mail, received_at=taken_at)
            reason = f"{size // 2**20} MB, more than any mail has: only the copy of the archive holds it"
            return replace(mail, parsed=replace(mail.parsed, kind="unusable", reason=Because.UNUSABLE(reason)))
        found = reader.read(step.mail)
        if found is None:
            # Passed over, it would never be read: the copy is damaged, as by a disk. Fetched again, it is whole.
            where = f"epoch {self.epoch.number}: {self.copy.repository.git_dir} has lost mail {step.mail}"
            raise GitError("mail-lost", f"{where} of commit {step.commit}; remove that folder to have it fetched again")
        return read_mail(found[1], blob=found[0], received_at=taken_at)

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
