"""What came out of the sandbox: a pack, unpacked strictly in a repository of its own and looked at commit by commit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from server.core.files import remove_tree
from server.core.git import GitError, Repository
from server.sources.mirror import mirror

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
class Change:
    """One path that a commit changes; `is_odd`: a symbolic link or submodule, before or after."""

    commit: str
    path: str
    is_odd: bool


def changes_of(repository: Repository, commits: Sequence[str]) -> Iterator[Change]:
    """What each of `commits` changes, a renamed file as two; paths as screening has them."""
    asked = "".join(f"{sha}\n" for sha in commits).encode()
    told = repository.output("diff-tree", "--stdin", "-r", "-z", "--no-renames", stdin=asked)
    words = iter(told.decode("utf-8", "surrogateescape").split("\0"))
    commit = ""
    for word in words:
        if not word.startswith(":"):
            commit = word.strip() or commit
        else:
            yield Change(commit, next(words, "?"), bool(_ODD_MODES & set(word.lstrip(":").split()[:2])))
