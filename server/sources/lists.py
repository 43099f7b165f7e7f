"""Watching list archives: fetch the epochs, then store each new mail in one transaction with the position reached."""

import re
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.git import ObjectReader, Repository
from server.core.locks import advisory_lock
from server.sources.epochs import epoch_urls
from server.sources.messages import forget_message, store_message
from server.sources.mirror import bare_repository
from server.sources.models import Epoch, MailingList
from server.sources.trees import FETCH_SECONDS, is_due

log = structlog.get_logger(__name__)

_PURGED = re.compile(rb"^purged ([0-9a-f]{40})$", re.MULTILINE)
_HEAD = "refs/tidemark/head"
# So many mails are a minute of work; a first read goes on with the next wake-up.
MAILS_AT_ONCE = 2000


@dataclass(frozen=True)
class ReadResult:
    """How many commits were read, and whether more are waiting."""

    commits: int
    more: bool


class _Moved(Exception):  # noqa: N818 (a signal inside this module, no error)
    """Another process moved the position of this epoch."""


def read_list(
    *, mailing_list: MailingList, limit: int | None = MAILS_AT_ONCE, timeout: float | None = FETCH_SECONDS
) -> ReadResult:
    """Fetch the epochs of a list and store what is new, oldest first, at most `limit` mails.

    A failure is recorded on the list and not raised. Killed at any point, the next call goes on where the last
    transaction ended. Does nothing while another process reads the same list.
    """
    with advisory_lock(f"sources.list.{mailing_list.pk}") as free:
        if not free:
            log.info("list_read_busy", list=mailing_list.name)
            return ReadResult(0, more=False)
        try:
            result = _read_epochs(mailing_list, limit, timeout)
        except DomainError as error:
            _note_result(mailing_list, error.message)
            return ReadResult(0, more=False)
        _note_result(mailing_list, "")
        log.info("list_read", list=mailing_list.name, commits=result.commits, more=result.more)
        return result


def _read_epochs(mailing_list: MailingList, limit: int | None, timeout: float | None) -> ReadResult:
    folder = Path(settings.STATE_DIR) / "lists" / mailing_list.name
    folder.mkdir(parents=True, exist_ok=True)
    done = 0
    for number, url in sorted(epoch_urls(mailing_list.url, cwd=folder).items()):
        repository = bare_repository(folder / f"{number}.git")
        repository.output(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", url, f"+HEAD:{_HEAD}", timeout=timeout
        )
        epoch, _ = Epoch.objects.get_or_create(mailing_list=mailing_list, number=number)
        commits = _new_commits(repository, epoch)
        left = None if limit is None else limit - done
        _store_commits(repository, epoch, commits[:left])
        done += len(commits[:left])
        if left is not None and len(commits) > left:
            return ReadResult(done, more=True)
    return ReadResult(done, more=False)


def _new_commits(repository: Repository, epoch: Epoch) -> list[str]:
    """Commits after the position, oldest first.

    When the position is no ancestor of the head any more, the archive rewrote its history (a purge or an edit): all of
    it is read again, and mails that are known are not stored twice.
    """
    if epoch.last_commit and not repository.is_ancestor(epoch.last_commit, _HEAD):
        log.warning("epoch_rewritten", list=epoch.mailing_list.name, epoch=epoch.number)
        epoch.last_commit = ""
        epoch.save(update_fields=["last_commit"])
    new = f"{epoch.last_commit}..{_HEAD}" if epoch.last_commit else _HEAD
    return repository.output("rev-list", "--reverse", "--first-parent", new, "--").decode().split()


def _store_commits(repository: Repository, epoch: Epoch, commits: list[str]) -> None:
    try:
        with repository.objects() as reader:
            for commit in commits:
                _store_commit(reader, epoch, commit)
    except _Moved:
        log.warning("epoch_moved_elsewhere", list=epoch.mailing_list.name, epoch=epoch.number)


@transaction.atomic
def _store_commit(reader: ObjectReader, epoch: Epoch, commit: str) -> None:
    """One mail and the new position, or neither."""
    moved = Epoch.objects.filter(pk=epoch.pk, last_commit=epoch.last_commit).update(last_commit=commit)
    if moved != 1:
        raise _Moved
    mail = reader.read(f"{commit}:m")
    if mail and mail[1]:
        store_message(mailing_list=epoch.mailing_list, raw=mail[1], blob=mail[0])
    elif gone := _removed_blob(reader, commit):
        forget_message(mailing_list=epoch.mailing_list, blob=gone)
    epoch.last_commit = commit


def _removed_blob(reader: ObjectReader, commit: str) -> str | None:
    """Which mail a commit takes away: a deletion keeps it in `d`, a purge names it and leaves `m` empty."""
    if deleted := reader.read(f"{commit}:d"):
        return deleted[0]
    found = reader.read(commit)
    purged = _PURGED.search(found[1]) if found else None
    return purged[1].decode() if purged else None


def _note_result(mailing_list: MailingList, error: str) -> None:
    now = clock.now()
    mailing_list.polled_at, mailing_list.last_error = now, error
    mailing_list.failing_since = (mailing_list.failing_since or now) if error else None
    mailing_list.save(update_fields=["polled_at", "last_error", "failing_since"])
    if error:
        log.warning("list_read_failed", list=mailing_list.name, error=error)


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
