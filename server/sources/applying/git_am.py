"""Commits made in a sandbox, and looked at before the mirror keeps them: a series applied, a commit reverted."""

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
from server.core.programs.git import Completed, GitError, Repository
from server.core.programs.sandbox import Room
from server.sources.mirror import mirror, record_revisions, revert_ref
from server.sources.models import Revision
from server.sources.screened_mails import ScreenedMail, prefixes, shown

# More than the largest series takes, with room for what its pack repeats.
_MOST_PACK_BYTES = 128 * 1024**2
_ODD_MODES = frozenset({"120000", "160000"})


def make_repository(git_dir: Path, *, head: str, borrow: Path, config: str) -> Path:
    """A new git directory whose HEAD is `head` and which sees the objects of `borrow`; what was there is removed.

    Written by hand, because starting git costs more: the form is git's own of version 1.0.
    """
    remove_tree(git_dir)
    for name in ("objects/info", "refs/heads", "refs/tags"):
        (git_dir / name).mkdir(parents=True)
    (git_dir / "HEAD").write_text(f"{head}\n")
    (git_dir / "objects" / "info" / "alternates").write_text(f"{borrow}\n")
    (git_dir / "config").write_text(f"[core]\n\trepositoryFormatVersion = 0\n{config}")
    return git_dir


def clean_repository(folder: Path, pack: bytes) -> Repository:
    """A bare repository at `folder` that borrows the mirror's objects and holds those of `pack`.

    git refuses objects that are broken, or whose paths lead into .git (`--strict`).
    """
    objects = mirror().git_dir / "objects"
    bare = "\tbare = true\n"
    repository = Repository(make_repository(folder, head="ref: refs/heads/none", borrow=objects, config=bare))
    size = f"--max-input-size={_MOST_PACK_BYTES}"
    repository.output("index-pack", "--stdin", "--fix-thin", "--strict", size, stdin=pack)
    return repository


def linear_commits(repository: Repository, base: str, head: str) -> list[str]:
    """The commits above `base` up to `head`, oldest first; GitError unless each has just the one before as parent."""
    lines = repository.output("rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{head}").decode()
    commits, before = [], base
    for sha, *parents in map(str.split, lines.splitlines()):
        if parents != [before]:
            raise GitError("git-failed", f"git am made commit {sha[:12]} with parents {' '.join(parents)[:200]}")
        commits.append(sha)
        before = sha
    if before != head:
        raise GitError("git-failed", f"git am ended at {head[:12]}, which is not above {base[:12]}")
    return commits


@dataclass(frozen=True)
class PathChange:
    """One path that a commit changes; `is_odd`: a symbolic link or submodule, before or after."""

    commit: str
    path: str
    is_odd: bool


def changes_of(repository: Repository, commits: Sequence[str]) -> Iterator[PathChange]:
    """What each of `commits` changes, a renamed file as two; paths as screening has them."""
    asked = "".join(f"{sha}\n" for sha in commits).encode()
    told = repository.output("diff-tree", "--stdin", "-r", "-z", "--no-renames", stdin=asked)
    words = iter(told.decode("utf-8", "surrogateescape").split("\0"))
    commit = ""
    for word in words:
        if not word.startswith(":"):
            commit = word.strip() or commit
        else:
            yield PathChange(commit, next(words, "?"), bool(_ODD_MODES & set(word.lstrip(":").split()[:2])))


# `git am` of a whole series on one base, in a throw-away repository that borrows the mirror's objects.
#
# git runs in the sandbox there, and nothing that it left is trusted: its commits come out as a pack, which is
# unpacked and checked in a second repository that no mail ever touched.

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


# Taking one commit back out of what came later, without a work tree.
#
# git merges blobs that strangers wrote here, so it runs in the sandbox, in a throw-away repository that borrows the
# mirror's objects; what it made comes out as a pack and is checked (server/sources/applying).

_WHO = ("Tidemark", "tidemark@localhost")
_SECONDS = 60.0
_CONFLICT = 1


def revert_commit(*, head: Revision, culprit: Revision) -> Revision | None:
    """The commit on top of `head` that takes `culprit`, one of its ancestors, back; None where that conflicts.

    The same call makes the same commit: names and dates do not depend on when it runs. GitError, temporary, when git
    fails or takes too long.
    """
    with scratch_folder(f"revert-{head.sha[:20]}-{culprit.sha[:20]}") as scratch:
        made = _make(scratch, head, culprit)
    if made is None:
        return None
    return record_revisions(tree=head.tree, shas=[made], foreign=_is_foreign(head, culprit))[0]


def _is_foreign(head: Revision, culprit: Revision) -> bool:
    """What holds code of a series stays code of its author, whom builders do not trust."""
    return head.foreign or culprit.foreign


def _make(scratch: Path, head: Revision, culprit: Revision) -> str | None:
    repository = _borrowing(scratch / "room")
    # git finds the merge base by itself: a commit on top of the culprit with the tree before it makes that the culprit.
    before = _commit(repository, f"{culprit.sha}^^{{tree}}", culprit, culprit)
    merged = repository.run("merge-tree", "--write-tree", "--no-messages", head.sha, before, timeout=_SECONDS)
    if merged.code == _CONFLICT:
        return None
    made = _commit(repository, _word(merged), head, culprit)
    asked = f"{made}\n^{head.sha}\n".encode()
    pack = repository.output("pack-objects", "-q", "--revs", "--thin", "--stdout", stdin=asked)
    clean = clean_repository(scratch / "clean", pack)
    commits = tuple(linear_commits(clean, head.sha, made))
    kept = Applied(base=head.sha, commits=commits, prerequisites=(), repository=clean)
    keep_commits(applied=kept, refs={revert_ref(made, foreign=_is_foreign(head, culprit)): made})
    return made


def _borrowing(room: Path) -> Repository:
    objects = mirror().git_dir / "objects"
    git_dir = make_repository(room / "git", head="ref: refs/heads/none", borrow=objects, config="\tbare = true\n")
    return Repository(git_dir, room=Room(writable=room, readable=borrowed_folders(objects)))


def _commit(repository: Repository, tree: str, parent: Revision, culprit: Revision) -> str:
    """A commit of `tree` on top of `parent`, dated as that."""
    date = f"@{int(parent.committed_at.timestamp())} +0000"
    who = {
        f"GIT_{role}_{field}": value
        for role in ("AUTHOR", "COMMITTER")
        for field, value in zip(("NAME", "EMAIL", "DATE"), (*_WHO, date), strict=True)
    }
    told = f'Revert "{culprit.subject}"\n\nThis reverts commit {culprit.sha}.\n'.encode("utf-8", "replace")
    sha = _word(repository.run("rev-parse", "--verify", "--end-of-options", tree))
    return _word(repository.run("commit-tree", "-p", parent.sha, sha, stdin=told, extra=who))


def _word(done: Completed) -> str:
    if done.code != 0:
        raise GitError("git-failed", f"git ended with {done.code}: {done.stderr.strip()[:300]}", stderr=done.stderr)
    return done.stdout.decode(errors="replace").split()[0]
