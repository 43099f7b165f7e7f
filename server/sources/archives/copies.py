"""The local copy of one epoch of a list archive: fetching it, and what its commits do."""

import hashlib
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import structlog
from django.conf import settings

from server.core.addresses import without_credentials
from server.core.git import GitError, ObjectReader, Repository
from server.core.processes import Limits
from server.sources.archives.epochs import ASK_LIMITS, GIT_HTTP, EpochPlace
from server.sources.mirror import bare_repository
from server.sources.trees.remotes import within_room

log = structlog.get_logger(__name__)

_HEAD = "refs/tidemark/head"
# What holds the position of the reader, and histories that were replaced and are not settled yet.
_READ = "refs/tidemark/read"
_REPLACED = "refs/tidemark/replaced"
# The only ref of an epoch that public-inbox has made.
_BRANCH = "refs/heads/master"
# There while an epoch is read again from its beginning.
_AGAIN = "refs/tidemark/again"
_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_ASK_SECONDS = 60.0
# Listing the largest epochs there are (1 GB, some 300 000 mails) takes a few seconds.
_LIST_SECONDS = 600.0
# A file in the copy: there while what was purged may still be in it.
UNCLEAN = "tidemark-unclean"
# public-inbox begins a new epoch at about 1 GB.
_FETCH_LIMITS = Limits(file_bytes=16 * 2**30, memory_bytes=4 * 2**30)
# git holds a lock file for moments; an older one is what a killed git left.
_STALE_LOCK_SECONDS = 60.0
_COMMIT = re.compile(r"([0-9a-f]{40}) (-?\d*)")
_CHANGE = re.compile(r":\d{6} 100\d{3} [0-9a-f]{40} ([0-9a-f]{40}) [A-Z]\d*\t([md])")
_PURGED = re.compile(rb"^purged((?: [0-9a-f]{40})+)$", re.MULTILINE)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC).timestamp()


@dataclass(frozen=True)
class Step:
    """One commit of an epoch: it brings the mail `mail`, or takes away `deleted`, or stands where one was purged.

    Both are blob ids or "". `taken_at` is the committer date: when the archive took the mail.
    """

    commit: str
    taken_at: datetime
    mail: str = ""
    deleted: str = ""

    @property
    def stands_for_purge(self) -> bool:
        return not self.mail and not self.deleted


@dataclass(frozen=True)
class EpochCopy:
    """A bare repository in the state directory."""

    number: int
    repository: Repository

    @classmethod
    def of(cls, list_name: str, number: int) -> "EpochCopy":
        return cls(number, bare_repository(archive_folder(list_name) / f"{number}.git"))

    def fetch(self, place: EpochPlace, *, position: str, timeout: float) -> None:
        """Bring what is new; nothing is lost when the history was rewritten, as `position` keeps a ref of its own.

        An epoch that is empty yet is none to fail for. GitError when the remote cannot be read.
        """
        self._remove_stale_locks()
        if position and self._resolve(_READ) != position and self._resolve(position):
            self._git("update-ref", _READ, position)
        if self._is_newest(place):
            return
        patience = min(timeout, _ASK_SECONDS)
        listed = self._git("ls-remote", "--", place.url, "HEAD", timeout=patience, limits=ASK_LIMITS)
        head = listed.decode(errors="replace").partition("\t")[0].strip()
        if head and head != self.head():
            limits = within_room(_FETCH_LIMITS, self.repository.git_dir)
            options = ("--quiet", "--no-tags", "--no-write-fetch-head")
            try:
                self._git("fetch", *options, "--", place.url, f"+HEAD:{_HEAD}", timeout=timeout, limits=limits)
            except GitError:
                # One process at a time fetches here. A pack that broke off may fill the disk.
                for path in self.repository.git_dir.glob("objects/pack/tmp_pack_*"):
                    path.unlink(missing_ok=True)
                raise

    def head(self) -> str:
        """The commit that the archive's epoch ended with when it was fetched last, "" when it has none."""
        return self._resolve(_HEAD)

    def holds(self, older: str, newer: str) -> bool:
        """Whether commit `newer` has `older` in its history (or is it)."""
        return older == newer or self.repository.is_ancestor(older, newer)

    def steps(self, newest: str, after: str = "") -> list[Step]:
        """What the commits from behind `after` up to `newest` do, oldest first."""
        span = f"{after}..{newest}" if after else newest
        order = ("--reverse", "--topo-order", "--sparse", "--diff-merges=first-parent")
        shape = ("--root", "--raw", "--no-abbrev", "--no-renames", "--format=%H %ct")
        listed = self._git("log", *order, *shape, span, "--", "m", "d", timeout=_LIST_SECONDS)
        return _steps(listed.decode(errors="replace"))

    def begin_again(self, position: str) -> None:
        """Note that the epoch is read from its beginning, and which history, up to `position`, was replaced."""
        self._git("update-ref", _AGAIN, self.head())
        # Where the copy itself was lost, there is no old history to compare with.
        if self._resolve(position):
            self._git("update-ref", f"{_REPLACED}/{position}", position)

    @property
    def is_read_again(self) -> bool:
        return bool(self._resolve(_AGAIN))

    def replaced(self) -> list[str]:
        """Ends of the histories that were replaced and are not settled."""
        return self._git("for-each-ref", "--format=%(objectname)", _REPLACED).decode().split()

    def end_again(self, position: str, *, seconds: float) -> None:
        """Let go of replaced histories: what only they held leaves the disk, as what was purged should."""
        self._git("update-ref", _READ, position)
        unclean = self.repository.git_dir / UNCLEAN
        unclean.touch()
        for commit in self.replaced():
            self._git("update-ref", "-d", f"{_REPLACED}/{commit}")
        try:
            self._git("gc", "--quiet", "--prune=now", timeout=seconds)
            unclean.unlink()
        except GitError as error:
            # Nothing is wrong with what was read; upkeep has more time and sees the mark.
            log.warning("epoch_not_cleaned", epoch=str(self.repository.git_dir), error=error.message)
        self._git("update-ref", "-d", _AGAIN)

    def sizes(self, blobs: list[str]) -> dict[str, int]:
        """Bytes of each blob that there is."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        listed = self.repository.output("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=asked)
        rows = [line.split() for line in listed.decode().splitlines()]
        return {blob: int(size) for blob, size in rows if size.isdigit()}

    def _is_newest(self, place: EpochPlace) -> bool:
        """Whether the manifest says that the epoch ends where this copy does: its fingerprint is made of the refs."""
        listed = f"{self.head()} {_BRANCH}\n".encode()
        return place.fingerprint == hashlib.sha1(listed, usedforsecurity=False).hexdigest()

    def _remove_stale_locks(self) -> None:
        """A git that was killed leaves its lock files, and every later one would refuse to work."""
        folder = self.repository.git_dir
        for lock in [*folder.glob("*.lock"), *(folder / "refs").rglob("*.lock")]:
            # It may be gone by now: git holds its locks for moments.
            with suppress(FileNotFoundError):
                if time.time() - lock.stat().st_mtime > _STALE_LOCK_SECONDS:
                    lock.unlink()

    def _resolve(self, ref: str) -> str:
        return self.repository.resolve(ref) or ""

    def _git(self, *args: str, timeout: float = _ASK_SECONDS, limits: Limits | None = None) -> bytes:
        done = self.repository.run(*args, timeout=timeout, extra=GIT_HTTP, limits=limits)
        if done.code != 0:
            said = without_credentials(done.stderr.strip()) or f"exit status {done.code}"
            raise GitError("git-failed", f"epoch {self.number}: git {args[0]}: {said}", stderr=done.stderr)
        return done.stdout


def archive_folder(list_name: str) -> Path:
    """Where the copies of a list's epochs are."""
    folder = Path(settings.STATE_DIR) / "lists" / list_name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def purged_blobs(reader: ObjectReader, commit: str) -> list[str]:
    """The mails that a purge put this commit in the place of: it names them, and `m` (or `d`) is left empty."""
    found = reader.read(commit)
    named = _PURGED.search(found[1]) if found else None
    return named[1].decode().split() if named else []


def _steps(listed: str) -> list[Step]:
    steps: list[Step] = []
    for line in listed.splitlines():
        if start := _COMMIT.fullmatch(line):
            steps.append(Step(start[1], _moment(start[2])))
        elif (change := _CHANGE.fullmatch(line)) and steps and change[1] != _EMPTY_BLOB:
            last = steps[-1]
            mail, deleted = (change[1], last.deleted) if change[2] == "m" else (last.mail, change[1])
            steps[-1] = Step(last.commit, last.taken_at, mail, deleted)
    return steps


def _moment(seconds: str) -> datetime:
    return datetime.fromtimestamp(min(max(int(seconds or 0), 0), _LATEST), tz=UTC)
