"""Storing the mails of one epoch: each in one transaction with the position that is reached with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from django.db import transaction

from server.core import clock
from server.core.git import GitError, ObjectReader
from server.sources.archives.copies import EpochCopy, Step, purged_blobs
from server.sources.archives.vanished import forget
from server.sources.messages.storing import ReadMail, keep_parsed, read_mail, restore_message
from server.sources.models import Epoch, Message

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

    def read(self, steps: Sequence[Step]) -> bool:
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

    def _to_take(self, steps: Sequence[Step]) -> Iterator[Step]:
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

    def _take(self, reader: ObjectReader, step: Step, size: int) -> None:
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

    def _mail(self, reader: ObjectReader, step: Step, size: int) -> ReadMail:
        taken_at = _believable(step.taken_at)
        if size > _LARGEST_MAIL:
            mail = read_mail(b"", blob=step.mail, received_at=taken_at)
            reason = f"{size // 2**20} MB, more than any mail has: only the copy of the archive holds it"
            return replace(mail, parsed=replace(mail.parsed, kind="unusable", reason=reason))
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


def wanted_from(steps: Sequence[Step], since: datetime | None) -> int:
    """Index of the first step that is to be read.

    Everything behind the first mail that was taken at `since` or later is, so that a mail with a wrong early date is
    not lost; dates that lie in the future tell nothing.
    """
    if since is None:
        return 0
    latest = clock.now() + _CLOCK_SKEW
    return next((n for n, step in enumerate(steps) if since <= step.taken_at <= latest), len(steps))
