"""`git am` of a whole series on one base, in a throw-away repository that borrows the mirror's objects."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from server.core.git import Completed, GitError, Repository, run
from server.sources.mirror import mirror
from server.sources.screening import ScreenedMail

# Fixed, so that applying again makes the same commits; the date is the mail's.
_COMMITTER = {"GIT_COMMITTER_NAME": "Tidemark", "GIT_COMMITTER_EMAIL": "tidemark@localhost"}
_FROM_LINE = re.compile(rb"^(?=>*From )", re.MULTILINE)
_ODD_MODES = frozenset({"120000", "160000"})


@dataclass(frozen=True)
class Applied:
    commits: tuple[str, ...]


@dataclass(frozen=True)
class NotApplied:
    reason: str


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """An empty folder under STATE_DIR; what a killed predecessor of the same name left is removed first."""
    folder = Path(settings.STATE_DIR) / "scratch" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply_mails(
    *, mails: list[ScreenedMail], base: str, scratch: Path, seconds: float
) -> tuple[Repository, Applied | NotApplied]:
    """Apply `mails` to commit `base` with `git am -3`, as a maintainer would: three-way, scissors lines ignored.

    Subjects lose all leading brackets, git's default. Only the touched files are checked out (a kernel has 78,000); the
    index is whole, so that the resulting trees are those of a full checkout. git may take `seconds`.
    """
    shutil.rmtree(scratch / "tree", ignore_errors=True)
    tree = scratch / "tree"
    repository = _borrowing_repository(tree)
    _check_out(repository, base, frozenset().union(*(m.paths for m in mails)))
    mbox = b"".join(_mbox_entry(m.content) for m in mails)
    am = ["am", "-3", "--no-scissors", "--no-keep-cr", "--no-gpg-sign", "--committer-date-is-author-date"]
    try:
        done = repository.run(*am, "--patch-format=mboxrd", stdin=mbox, timeout=seconds, extra=_COMMITTER)
    except GitError as error:
        if error.code != "git-timeout":
            raise
        return repository, NotApplied(error.message)
    if done.code != 0:
        return repository, NotApplied(_failure(repository, done, len(mails)))
    return repository, _checked(repository, base, done, len(mails))


def _borrowing_repository(tree: Path) -> Repository:
    tree.mkdir(parents=True)
    run("init", "--quiet", "--template=", ".", cwd=tree)
    repository = Repository(tree / ".git", tree)
    info = repository.git_dir / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_text(f"{mirror().git_dir / 'objects'}\n")
    return repository


def _check_out(repository: Repository, base: str, paths: frozenset[str]) -> None:
    """Put HEAD, index and the files `paths` (with all .gitattributes, which steer merging) to `base`."""
    repository.output("config", "core.sparseCheckout", "true")
    repository.output("config", "core.sparseCheckoutCone", "false")
    patterns = [".gitattributes", *(_pattern(p) for p in sorted(paths))]
    info = repository.git_dir / "info"
    info.mkdir(exist_ok=True)
    (info / "sparse-checkout").write_bytes("\n".join(patterns).encode("utf-8", "surrogateescape") + b"\n")
    repository.output("update-ref", "--no-deref", "HEAD", base)
    repository.output("read-tree", "-m", "-u", "HEAD")


def _pattern(path: str) -> str:
    """`path` anchored and taken literally, in the language of .gitignore."""
    return "/" + re.sub(r"([\\*?\[\]!# ])", r"\\\1", path)


def _mbox_entry(mail: bytes) -> bytes:
    """Lines that look like the start of a mail are quoted, or a patch could smuggle in another mail."""
    quoted = _FROM_LINE.sub(b">", mail)
    return b"From tidemark Thu Jan  1 00:00:00 1970\n" + quoted.rstrip(b"\n") + b"\n\n"


def _failure(repository: Repository, done: Completed, total: int) -> str:
    """Which patch failed, and git's own words about it."""
    position = repository.git_dir / "rebase-apply" / "next"
    which = f"patch {position.read_text().strip()}/{total}: " if position.exists() else ""
    said = done.stdout.decode(errors="replace") + done.stderr
    words = [line for line in said.splitlines() if re.match(r"(error|fatal|CONFLICT|Patch failed)", line)]
    return which + "; ".join(words or [said.strip()])[:1500].replace("\0", "")


def _checked(repository: Repository, base: str, done: Completed, total: int) -> Applied | NotApplied:
    """Count what was made: git am ends well on an empty mailbox and skips a patch that is in already."""
    commits = repository.output("rev-list", "--reverse", f"{base}..HEAD").decode().split()
    if len(commits) != total:
        said = " ".join(done.stdout.decode(errors="replace").split())[:800]
        return NotApplied(f"git am made {len(commits)} commits of {total} patches: {said}")
    for number, (before, after) in enumerate(zip([base, *commits], commits, strict=False), start=1):
        changed = repository.output("diff-tree", "-r", "-z", "--no-renames", before, after).decode(errors="replace")
        for entry, path in zip(*[iter(changed.split("\0"))] * 2, strict=False):
            if _ODD_MODES & set(entry.lstrip(":").split()[:2]):
                return NotApplied(f"patch {number}/{total} touches {path}, a symbolic link or submodule")
    return Applied(tuple(commits))


def keep_commits(*, source: Repository, commits: tuple[str, ...], refs: list[str]) -> None:
    """Bring `commits` into the mirror, each under its ref, in one step."""
    head = commits[-1]
    source.output("update-ref", "refs/heads/result", head)
    kept = mirror()
    kept.output(
        "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", str(source.work_tree), "refs/heads/result"
    )
    lines = "".join(f"update {ref} {sha}\n" for ref, sha in zip(refs, commits, strict=True))
    kept.output("update-ref", "--stdin", stdin=lines.encode())
