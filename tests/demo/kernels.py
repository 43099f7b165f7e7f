"""A small repository to which the demo's patches apply: blank files with the context that the patches ask for."""

import re
from pathlib import Path

from demo.postings import SERIES
from demo.processes import git, git_environment, run
from demo.source import BRANCH

_HUNK = re.compile(r"^@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_FILE = re.compile(r"^\+\+\+ b/(\S+)$")
_LINES = 5000
_DATE = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}


def kernel_repository(folder: Path, *patches: Path) -> Path:
    """A bare repository whose branch has one commit: every patch applies on top of the ones before it."""
    files: dict[str, list[str]] = {}
    for patch in reversed(patches):
        _take_back(patch, files)
    repository = folder / "linux"
    run(["git", "init", "--quiet", "--bare", "--template=", repository], env=git_environment())
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    for name, lines in files.items():
        text = "".join(f"{line}\n" for line in lines).encode()
        blob = git(repository, "hash-object", "-w", "--stdin", stdin=text)
        git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
    tree = git(repository, "write-tree", env=index)
    commit = git(repository, "commit-tree", tree, "-m", "linux: A small one", env=_DATE)
    git(repository, "update-ref", f"refs/heads/{BRANCH}", commit)
    git(repository, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    return repository


def patches_of(kind: str) -> list[Path]:
    """All patch files of a series in the order in which they stand on each other."""
    folder = SERIES / kind
    first = [folder / name for name in ("base.patch", "unposted.patch") if (folder / name).exists()]
    return [*first, *sorted(folder.glob("[0-9]*.patch"))]


def _take_back(patch: Path, files: dict[str, list[str]]) -> None:
    """Put what the patch leaves behind into its files, then what it started from in its place: last hunk first."""
    for name, start, lines in reversed(_hunks(patch)):
        before = [line[1:] for line in lines if line[:1] in {" ", "-", ""}]
        after = [line[1:] for line in lines if line[:1] in {" ", "+", ""}]
        blank = files.setdefault(name, [f"line {number}" for number in range(_LINES)])
        blank[start - 1 : start - 1 + len(after)] = before


def _hunks(patch: Path) -> list[tuple[str, int, list[str]]]:
    """File, first line of the new file, and lines of each hunk."""
    name, hunks = "", list[tuple[str, int, list[str]]]()
    for line in patch.read_text(encoding="utf-8").splitlines():
        if found := _FILE.match(line):
            name = found[1]
        elif found := _HUNK.match(line):
            hunks.append((name, int(found[1]), []))
        elif hunks and not line.startswith(("diff --git ", "index ", "--- a/")):
            hunks[-1][2].append(line)
    return hunks
