"""`git am` of a whole series on one base, in a throw-away repository that borrows the mirror's objects.

git runs in the sandbox there, and nothing that it left is trusted: its commits come out as a pack, which is unpacked
and checked in a second repository that no mail ever touched.
"""

import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from server.core.errors import DomainError
from server.core.files import remove_tree
from server.core.git import Completed, GitError, Repository
from server.core.sandbox import Room
from server.sources.applying.check import changes_of, clean_repository, linear_commits, make_repository
from server.sources.applying.screening import ScreenedMail
from server.sources.applying.screening_paths import prefixes, shown
from server.sources.mirror import mirror

# Fixed, so that applying again makes the same commits; the date is the mail's.
_COMMITTER = {"GIT_COMMITTER_NAME": "Tidemark", "GIT_COMMITTER_EMAIL": "tidemark@localhost"}
_AM = ("am", "--no-scissors", "--no-keep-cr", "--no-gpg-sign", "--committer-date-is-author-date")
_FROM_LINE = re.compile(rb"^(?=>*From )", re.MULTILINE)
_FAILED_AT = re.compile(rb"^Patch failed at 0*(\d+)", re.MULTILINE)
# Words of the system, which no patch is to blame for.
_TROUBLE = re.compile(
    r"^(?:bwrap|prlimit): .*|^(?:error|fatal|warning): .*: (?:No space left on device|Disk quota exceeded"
    r"|Cannot allocate memory|Resource temporarily unavailable|Input/output error|Too many open files)$",
    re.MULTILINE,
)
# More than most tries write, and room for the logs that say so.
_FREE_BYTES = 512 * 1024**2
_SHA = re.compile(r"[0-9a-f]{40}")
_SPARSE = "[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = false\n"
# What git moves to another folder by itself no mail names.
_MERGING = "[merge]\n\tdirectoryRenames = false\n"
_LINKS = {"120000": "a symbolic link", "160000": "a submodule"}


@dataclass(frozen=True)
class Applied:
    """`base` is the commit below the first patch: the base that was asked for, or the last of `prerequisites` on it.

    The commits lie in `repository`, which lasts as long as its scratch folder.
    """

    base: str
    commits: tuple[str, ...]
    prerequisites: tuple[str, ...]
    repository: Repository


@dataclass(frozen=True)
class NotApplied:
    reason: str


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """An empty folder under STATE_DIR; what a killed predecessor of the same name left is removed first.

    DomainError `disk-full`, temporary, where hardly anything could be written to it.
    """
    folder = Path(settings.STATE_DIR) / "scratch" / name
    remove_tree(folder)
    _require_disk()
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        remove_tree(folder)


def _require_disk() -> None:
    """On a full disk git fails in many words, some of which look as if the patch were to blame."""
    if shutil.disk_usage(settings.STATE_DIR).free < _FREE_BYTES:
        message = f"patches wait, for less than {_FREE_BYTES >> 20} MB of disk are left for the scratch folder"
        raise DomainError("disk-full", message, permanent=False)


def apply_mails(
    *,
    mails: Sequence[ScreenedMail],
    base: str,
    scratch: Path,
    seconds: float,
    merging: bool,
    prerequisites: Sequence[ScreenedMail] = (),
) -> Applied | NotApplied:
    """Apply `prerequisites`, then `mails`, to commit `base` with `git am`, as a maintainer would.

    With `merging` three-way, but to no other path than the mail's: that is what rules were asked about. What a person
    was asked about is applied where its own lines say, or not at all: the sender chooses what is merged, by the blobs
    that his mails name. Scissors lines are ignored; subjects lose all leading brackets, git's default. A prerequisite
    that the base holds already is left out. Only the touched files are checked out (a kernel has 78,000); the index is
    whole, so that the resulting trees are those of a full checkout. git may take `seconds`.
    """
    room = scratch / "room"
    remove_tree(room)
    every = [*prerequisites, *mails]
    repository = _borrowing_repository(room, base, frozenset().union(*(m.paths for m in every)))
    if reason := _beyond_links(repository, every):
        return NotApplied(reason)
    below, end = base, time.monotonic() + seconds
    if prerequisites:
        if reason := _am(repository, prerequisites, seconds, merging=merging):
            return NotApplied(reason)
        below = _head(repository)
    if reason := _am(repository, mails, max(end - time.monotonic(), 0.001), merging=merging):
        return NotApplied(reason)
    head = _head(repository)
    pack = repository.output("pack-objects", "-q", "--revs", "--thin", "--stdout", stdin=f"{head}\n^{base}\n".encode())
    return _checked(clean_repository(scratch / "clean", pack), (base, below, head), mails, prerequisites)


def _borrowing_repository(room: Path, base: str, paths: frozenset[str]) -> Repository:
    """A repository whose HEAD is `base`, with whole index and only the files `paths` checked out.

    No .gitattributes steers merging: a driver may take lines from both sides.
    """
    objects = mirror().git_dir / "objects"
    git_dir = make_repository(room / "tree" / ".git", head=base, borrow=objects, config=_SPARSE + _MERGING)
    patterns = [".gitattributes", *(_pattern(p) for p in sorted(paths))]
    (git_dir / "info").mkdir()
    (git_dir / "info" / "attributes").write_text("* merge=text\n")
    (git_dir / "info" / "sparse-checkout").write_bytes("\n".join(patterns).encode("utf-8", "surrogateescape") + b"\n")
    repository = Repository(git_dir, room / "tree", Room(writable=room, readable=borrowed_folders(objects)))
    repository.output("read-tree", "-m", "-u", "HEAD")
    return repository


def borrowed_folders(objects: Path) -> tuple[Path, ...]:
    """The mirror's folder of objects, and those from which an operator lets it borrow in turn."""
    found = [objects]
    for folder in found:
        listed = folder / "info" / "alternates"
        more = [Path(line) for line in listed.read_text().splitlines() if line] if listed.exists() else []
        found += [path for path in more if path not in found]
    return tuple(found)


def _pattern(path: str) -> str:
    """`path` anchored and taken literally, in the language of .gitignore."""
    return "/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _beyond_links(repository: Repository, mails: Sequence[ScreenedMail]) -> str:
    """Which patch would write to, or through, a symbolic link or submodule of the tree; "" if none."""
    listed = repository.output("ls-files", "--stage", "-z").decode("utf-8", "surrogateescape").split("\0")
    links = {path: entry[:6] for entry, _, path in (line.partition("\t") for line in listed) if entry[:6] in _LINKS}
    for mail in mails:
        for path in sorted(mail.paths):
            for part in prefixes(path):
                if part in links:
                    way = "touches" if part == path else f"touches {shown(path)} through"
                    return f"{mail.label} {way} {shown(part)}, {_LINKS[links[part]]} of the tree"
    return ""


def _am(repository: Repository, mails: Sequence[ScreenedMail], seconds: float, *, merging: bool) -> str:
    """Why git am failed; "" if it did not. GitError for what may be the fault of the host, such as `git-timeout`."""
    mbox = b"".join(_mbox_entry(m.content) for m in mails)
    way = "--3way" if merging else "--no-3way"
    done = repository.run(*_AM, way, "--patch-format=mboxrd", stdin=mbox, timeout=seconds, extra=_COMMITTER)
    if done.code == 0:
        return ""
    # What no patch is to blame for is tried again.
    _require_disk()
    if trouble := _TROUBLE.search(done.stderr):
        raise GitError("git-failed", f"git am: {trouble[0].strip()[:300]}", stderr=done.stderr)
    if reason := _failure(done, mails):
        return reason
    # Nothing said is nothing held against a patch; an empty reason would be none at all.
    raise GitError("git-failed", f"git am ended with exit status {done.code} and without a word")


def _mbox_entry(mail: bytes) -> bytes:
    """Lines that look like the start of a mail are quoted, or a patch could smuggle in another mail.

    Nothing else is changed: git must read here what it read when the mail was screened.
    """
    quoted = _FROM_LINE.sub(b">", mail)
    return b"From tidemark Thu Jan  1 00:00:00 1970\n" + quoted + (b"" if quoted.endswith(b"\n") else b"\n")


def _failure(done: Completed, mails: Sequence[ScreenedMail]) -> str:
    """Which patch failed, and git's own words about it."""
    position = _FAILED_AT.search(done.stdout)
    number = int(position[1]) if position else 0
    which = f"{mails[number - 1].label}: " if 0 < number <= len(mails) else ""
    said = done.stdout.decode(errors="replace") + done.stderr
    words = [line for line in said.splitlines() if re.match(r"(error|fatal|CONFLICT|Patch failed)", line)]
    return which + "; ".join(words or [said.strip()])[:1500].replace("\0", "")


def _head(repository: Repository) -> str:
    sha = repository.output("rev-parse", "HEAD").decode(errors="replace").strip()
    if not _SHA.fullmatch(sha):
        raise GitError("git-failed", f"git rev-parse HEAD said {sha[:100]}")
    return sha


def _checked(
    clean: Repository, tips: tuple[str, str, str], mails: Sequence[ScreenedMail], prerequisites: Sequence[ScreenedMail]
) -> Applied | NotApplied:
    """Count what was made: git am ends well on an empty mailbox and skips a patch that is in already.

    And look at what it changes: not what a mail says, but what git made of it, is built.
    """
    base, below, head = tips
    made = linear_commits(clean, base, head)
    if below not in [base, *made]:
        raise GitError("git-failed", f"git am went from {below[:12]} to {head[:12]}, which is not above it")
    count = made.index(below) + 1 if below != base else 0
    before, commits = made[:count], made[count:]
    if len(commits) != len(mails):
        return NotApplied(
            f"git am made {len(commits)} commits of {len(mails)} patches: the others are already applied there"
        )
    # To a three-way merge a file that is not there is any other one whose blob the patch's index line names.
    # Which prerequisites git has left out is not told.
    below_it = frozenset().union(*(mail.paths for mail in prerequisites))
    named = {**dict.fromkeys(before, below_it), **{sha: m.paths for sha, m in zip(commits, mails, strict=True)}}
    for change in changes_of(clean, made):
        if change.is_odd:
            return NotApplied(f"commit {change.commit[:12]} touches {shown(change.path)}, a symbolic link or submodule")
        if change.path not in named[change.commit]:
            return NotApplied(
                f"commit {change.commit[:12]} touches {shown(change.path)}, which its patch does not name"
            )
    return Applied(below, tuple(commits), tuple(before), clean)


def keep_commits(*, applied: Applied, refs: dict[str, str]) -> None:
    """Bring the commits into the mirror and set `refs` (name to commit) there, in one step."""
    # Written by hand: the repository is ours, and new.
    (applied.repository.git_dir / "refs" / "heads" / "result").write_text(f"{applied.commits[-1]}\n")
    kept = mirror()
    source = str(applied.repository.git_dir)
    kept.output("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", source, "refs/heads/result")
    lines = "".join(f"update {ref} {sha}\n" for ref, sha in refs.items())
    kept.output("update-ref", "--stdin", stdin=lines.encode())
