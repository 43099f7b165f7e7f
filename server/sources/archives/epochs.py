"""The git epochs of a public-inbox archive: where they are, and the local copy of each."""

import hashlib
import json
import re
import time
import zlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import structlog
from django.conf import settings

from server.core.addresses import without_credentials
from server.core.errors import DomainError
from server.core.programs.git import GitError, ObjectReader, Repository, credential, run
from server.core.programs.sandbox import Limits
from server.core.watchdog import Watchdog
from server.sources.mirror import bare_repository
from server.sources.polls import within_room

# For each read; the whole answer, trickled or not, has `_LONGEST`.
_TIMEOUT = 20.0
_LONGEST = 60.0
_MOST_REDIRECTS = 5
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
# The file itself may be gzip, and a server may say so as a coding of its own, too.
_MOST_PACKED = 2


def fetched(url: str, *, largest: int) -> tuple[str, bytes] | None:
    """Where the file was found in the end, and its content, unpacked if it is gzip; None where there is nothing.

    It may redirect, but not to another host. Raises DomainError "list-unreachable" for everything else, among it
    content that is larger than `largest` bytes, packed or unpacked.
    """
    watchdog = Watchdog(_LONGEST)
    try:
        with watchdog.on_guard(), _client() as client:
            place = httpx2.URL(url)
            for _ in range(_MOST_REDIRECTS):
                # Asked for anew at each step: a redirect may lead from https to http.
                auth = credential(str(place), cwd=Path("/"))
                with client.stream("GET", place, auth=auth, extensions={"trace": watchdog}) as answer:
                    if answer.next_request is None:
                        content = _content(url, answer, largest)
                        if watchdog.words():
                            # One that tells no length looks whole where it was ended.
                            raise unreachable(url, watchdog.words())
                        return None if content is None else (str(place), _unpacked(url, content, largest))
                    place = answer.next_request.url
                if place.host != httpx2.URL(url).host:
                    raise unreachable(url, f"redirects to another host, {place.host}")
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise unreachable(url, watchdog.words() or str(error) or type(error).__name__) from error
    finally:
        watchdog.forget()
    raise unreachable(url, "redirects too often")


def _client() -> httpx2.Client:
    # One connection at a time: the watchdog holds the newest.
    limits = httpx2.Limits(max_connections=1)
    return httpx2.Client(timeout=_TIMEOUT, headers={"Accept-Encoding": "identity"}, limits=limits)


def unreachable(url: str, why: str) -> DomainError:
    return DomainError("list-unreachable", without_credentials(f"{url}: {why}"), permanent=False)


def _content(url: str, answer: httpx2.Response, largest: int) -> bytes | None:
    if answer.status_code in {httpx2.codes.NOT_FOUND, httpx2.codes.GONE}:
        return None
    if not answer.is_success:
        raise unreachable(url, f"HTTP {answer.status_code}")
    content = bytearray()
    started = time.monotonic()
    # Raw: a coding that the server chose is unpacked below, where there is a limit.
    for part in answer.iter_raw():
        content += part
        if len(content) > largest:
            raise _too_large(url, largest)
        if time.monotonic() - started > _LONGEST:
            raise unreachable(url, f"took longer than {_LONGEST:g} s")
    return bytes(content)


def _unpacked(url: str, content: bytes, largest: int) -> bytes:
    for _ in range(_MOST_PACKED):
        if not content.startswith(_GZIP_MAGIC):
            break
        try:
            content = zlib.decompressobj(_GZIP).decompress(content, largest + 1)
        except zlib.error as error:
            raise unreachable(url, f"no gzip: {error}") from error
        if len(content) > largest:
            raise _too_large(url, largest)
    return content


def _too_large(url: str, largest: int) -> DomainError:
    return unreachable(url, f"larger than {largest // 2**20} MB")


# The manifest of a whole archive host with hundreds of lists is below 1 MB.
_LARGEST_MANIFEST = 8 * 1024 * 1024
_MOST_EPOCHS = 1000
# git holds all refs that a server names until it has named the last one.
ASK_LIMITS = Limits(file_bytes=2**20, memory_bytes=512 * 2**20)
# git itself must not be led to another host; the manifest has told where the archive is.
GIT_HTTP = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.followRedirects", "GIT_CONFIG_VALUE_0": "false"}


@dataclass(frozen=True)
class EpochPlace:
    """Where one epoch can be cloned from, and what the archive's manifest says of it.

    `fingerprint` changes whenever a ref of the epoch does; "" without a manifest. `modified` is the time of its newest
    commit.
    """

    number: int
    url: str
    fingerprint: str = ""
    modified: datetime | None = None


def find_epochs(url: str, *, known: Collection[int], cwd: Path) -> tuple[EpochPlace, ...]:
    """The epochs of the archive at `url`, lowest number first.

    Where there is no manifest, epochs are probed: those after `known` (numbers read before), which count up without
    gaps. `cwd` is any folder, for git to run in. Raises DomainError when none is found.
    """
    if urlsplit(url).scheme in {"http", "https"}:
        found = _listed(url) or _probed(url, known, cwd)
    else:
        found = _folders(Path(url.removeprefix("file://")))
    return tuple(sorted(found, key=lambda place: place.number))


def _folders(inbox: Path) -> list[EpochPlace]:
    for folder in (inbox / "git", inbox):
        if folder.is_dir():
            epochs = [p for p in folder.iterdir() if re.fullmatch(r"\d{1,4}(\.git)?", p.name) and p.is_dir()]
            if epochs:
                return [EpochPlace(int(p.name.removesuffix(".git")), str(p)) for p in epochs]
    raise unreachable(str(inbox), "no epochs in this folder")


def _listed(url: str) -> list[EpochPlace]:
    """From manifest.js.gz, which names the epochs of this inbox, and perhaps of others; [] if there is none."""
    # A proxy may serve the inbox under another path than the archive's own, but its name stays.
    name = urlsplit(url.rstrip("/")).path.rpartition("/")[2]
    before = rf"(?:.*/)?{re.escape(name)}/" if name else "/?"
    asked = f"{url.rstrip('/')}/manifest.js.gz"
    answer = fetched(asked, largest=_LARGEST_MANIFEST)
    if answer is None:
        return []
    inbox = answer[0].rpartition("/")[0]
    found = {}
    for key, facts in _entries(asked, answer[1]).items():
        if number := re.fullmatch(before + r"(git/)?(\d{1,4})(?:\.git)?", key):
            place = f"git/{number[2]}.git" if number[1] else number[2]
            found[int(number[2])] = _epoch_place(int(number[2]), f"{inbox}/{place}", facts)
    return list(found.values())


# lore.kernel.org has some thousand repositories.
_MOST_PARTS = 300_000


def _entries(url: str, content: bytes) -> dict[str, object]:
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        raise unreachable(url, f"no manifest: more than {_MOST_PARTS} objects and lists")
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise unreachable(url, f"no manifest: {error}") from error
    if not isinstance(entries, dict):
        raise unreachable(url, f"no manifest: {type(entries).__name__} instead of an object")
    return entries


def _epoch_place(number: int, url: str, facts: object) -> EpochPlace:
    """Facts that are not what they should be are left out: they only save work."""
    if not isinstance(facts, dict):
        return EpochPlace(number, url)
    fingerprint, modified = facts.get("fingerprint"), facts.get("modified")
    known = isinstance(fingerprint, str) and re.fullmatch(r"[0-9a-f]{40,64}", fingerprint)
    when = None
    if isinstance(modified, int) and 0 < modified < datetime(9999, 1, 1, tzinfo=UTC).timestamp():
        when = datetime.fromtimestamp(modified, tz=UTC)
    return EpochPlace(number, url, str(fingerprint) if known else "", when)


def _probed(url: str, known: Collection[int], cwd: Path) -> list[EpochPlace]:
    inbox = url.rstrip("/")
    found: list[EpochPlace] = []
    # The last one that is known is asked for again, so that an archive that went away is noticed.
    for number in range(max(known, default=0), _MOST_EPOCHS):
        tries = (f"{inbox}/git/{number}.git", f"{inbox}/{number}")
        there = next((place for place in tries if _answers(place, cwd)), None)
        if there is None:
            break
        found.append(EpochPlace(number, there))
    if not found:
        raise unreachable(inbox, f"neither manifest.js.gz nor an epoch {max(known, default=0)}")
    # Older ones stay where the newer are: a history that is rewritten must be seen there, too.
    pattern = found[0].url.rpartition(str(found[0].number))
    older = [EpochPlace(n, f"{pattern[0]}{n}{pattern[2]}") for n in sorted(set(known)) if n < found[0].number]
    return older + found


def _answers(url: str, cwd: Path) -> bool:
    return run("ls-remote", "--", url, cwd=cwd, timeout=_TIMEOUT, extra=GIT_HTTP, limits=ASK_LIMITS).code == 0


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
class ArchiveStep:
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

    def steps(self, newest: str, after: str = "") -> list[ArchiveStep]:
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


def _steps(listed: str) -> list[ArchiveStep]:
    steps: list[ArchiveStep] = []
    for line in listed.splitlines():
        if start := _COMMIT.fullmatch(line):
            steps.append(ArchiveStep(start[1], _moment(start[2])))
        elif (change := _CHANGE.fullmatch(line)) and steps and change[1] != _EMPTY_BLOB:
            last = steps[-1]
            mail, deleted = (change[1], last.deleted) if change[2] == "m" else (last.mail, change[1])
            steps[-1] = ArchiveStep(last.commit, last.taken_at, mail, deleted)
    return steps


def _moment(seconds: str) -> datetime:
    return datetime.fromtimestamp(min(max(int(seconds or 0), 0), _LATEST), tz=UTC)
