"""Real kernel history, commits made by the hundred, and series whose true base is known."""

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo.processes import IDENTITY, git, git_environment, only_writer, run
from demo.source import PACKAGE, SourcePackages, check_space
from demo.treemaker import commit_package, commits, prepare_repository

STABLE = "linux-6.1.y"
_SUBJECT = f"linux: Import Debian's {PACKAGE} "


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ensure_history(cache: Path) -> Path:
    """A bare repository with one commit and one tag for each version; needs no network once it is whole."""
    repository = cache / "linux-6.1.git"
    whole = cache / "linux-6.1.whole"
    with only_writer(cache, say):
        if not whole.exists():
            _make(cache, repository)
            whole.touch()
    return repository


def _make(cache: Path, repository: Path) -> None:
    prepare_repository(repository, STABLE)
    packages = SourcePackages(cache / "apt", PACKAGE)
    for version in packages.refresh():
        if _SUBJECT + version in commits(repository, STABLE):
            continue
        check_space(cache)
        say(f"downloading {PACKAGE} {version}")
        package = packages.download(version)
        say(f"committing {version}")
        commit_package(repository, STABLE, package, f"{_SUBJECT}{version}\n")
        packages.discard()
    for subject, sha in reversed(commits(repository, STABLE).items()):
        git(repository, "update-ref", f"refs/tags/{_tag_of(subject.removeprefix(_SUBJECT), repository)}", sha)


def _tag_of(version: str, repository: Path) -> str:
    """The tag v6.1.170 for the first package of that version, v6.1.170-4 for those that follow."""
    first = f"v{version.partition('-')[0]}"
    return f"v{version}" if git(repository, "for-each-ref", f"refs/tags/{first}") else first


# Files outside of these sizes are tables, or too little to be edited in three places.
_SHORTEST, _LONGEST = 3_000, 400_000


@dataclass(frozen=True)
class Edit:
    """One commit to be: files with their new content."""

    message: str
    files: dict[str, bytes]


@dataclass
class Importer:
    """Collects commits for `repository`; nothing is written before `write`."""

    repository: Path
    clock: int
    parts: list[bytes] = field(default_factory=list)

    def add(self, ref: str, parent: str, edits: Sequence[Edit]) -> None:
        """A line of commits above `parent`, at whose end `ref` shall stand; each is a minute younger than the last."""
        for number, edit in enumerate(edits):
            self.clock += 60
            text = edit.message.encode()
            head = f"commit {ref}\nauthor {IDENTITY} {self.clock} +0000\ncommitter {IDENTITY} {self.clock} +0000\n"
            self.parts.append(head.encode() + b"data %d\n%s\n" % (len(text), text))
            if number == 0:
                self.parts.append(f"from {parent}\n".encode())
            for path, content in edit.files.items():
                self.parts.append(f"M 100644 inline {path}\n".encode() + b"data %d\n%s\n" % (len(content), content))

    def write(self) -> None:
        command = ["git", "-C", str(self.repository), "fast-import", "--quiet", "--force"]
        subprocess.run(command, input=b"".join(self.parts), check=True, env=git_environment())
        self.parts.clear()


class Files:
    """Sources at commits, read once each."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository
        self.names: dict[tuple[str, str], list[str]] = {}
        self.contents: dict[tuple[str, str], bytes] = {}

    def below(self, commit: str, folder: str) -> list[str]:
        """C files and headers of common size below `folder`."""
        if (commit, folder) not in self.names:
            lines = git(self.repository, "ls-tree", "-r", "-l", commit, f"{folder}/").splitlines()
            entries = [(line.partition("\t")[2], line.split()) for line in lines]
            chosen = [name for name, words in entries if words[0] == "100644" and _SHORTEST < int(words[3]) < _LONGEST]
            self.names[commit, folder] = [name for name in chosen if name.endswith((".c", ".h"))]
        return self.names[commit, folder]

    def read(self, commit: str, path: str) -> bytes:
        if (commit, path) not in self.contents:
            command = ["git", "-C", str(self.repository), "cat-file", "blob", f"{commit}:{path}"]
            self.contents[commit, path] = subprocess.run(
                command, capture_output=True, check=True, env=git_environment()
            ).stdout
        return self.contents[commit, path]


def edited(content: bytes, dice: random.Random, serial: int) -> bytes:
    """One to three small changes of statements: one more, one with other words, one less."""
    lines = content.splitlines(keepends=True)
    statements = [n for n, line in enumerate(lines) if line.startswith(b"\t") and line.endswith(b";\n")]
    for place in sorted(dice.sample(statements, min(len(statements), dice.randint(1, 3))), reverse=True):
        kind = dice.choice(("more", "other", "less"))
        if kind == "more":
            lines.insert(place + 1, b"\tbarrier_data(&bench_%d);\n" % serial)
        elif kind == "other":
            lines[place] = lines[place].rstrip(b"\n") + b" /* bench %d */\n" % serial
        else:
            del lines[place]
    return b"".join(lines) if statements else content + b"/* bench %d */\n" % serial


def shifted(content: bytes, dice: random.Random, serial: int) -> bytes:
    """What another patch of the author's did near the top: the same lines further down, in a file nobody else has."""
    lines = content.splitlines(keepends=True)
    place = next((n for n, line in enumerate(lines) if n > 0 and line == b"\n"), 0)
    more = [b"/* bench %d: line %d of a local patch */\n" % (serial, n) for n in range(dice.randint(5, 40))]
    return b"".join([*lines[: place + 1], *more, *lines[place + 1 :]])


KINDS = ("base-commit", "index lines only", "drifted contexts", "tags only")
_FOLDERS = ("mm", "mm", "mm", "kernel", "fs/ext4", "lib", "arch/x86/mm", "include/linux", "net/core")
MM_LIST, STABLE_LIST = "linux-mm@lists.example", "stable@lists.example"
_MOST_PATCHES = 8
# After the youngest file of the sources.
_SPRING = 1_793_000_000
_STAMP = re.compile(rb"\.(\d{10})\.git\.")
_INDEX = re.compile(rb"^index [0-9a-f]+\.\.[0-9a-f]+[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One posted series and the commit on which it was made; `line` is the branch of that commit."""

    kind: str
    truth: str
    line: str
    mails: tuple[bytes, ...]


@dataclass(frozen=True)
class _Plan:
    kind: str
    truth: str
    line: str
    tag: str
    to: str


def ensure_branches(repository: Path) -> dict[str, list[str]]:
    """Commits of each branch, newest first; makes mm-stable and mm-unstable beside the real history if need be."""
    if not git(repository, "for-each-ref", "refs/heads/mm-unstable"):
        dice = random.Random(61)  # noqa: S311 (made-up commits)
        files, importer = Files(repository), Importer(repository, _SPRING)
        start = git(repository, "rev-parse", "refs/tags/v6.1.187")
        edits = _edits(files, start, dice, count=30, serial=1_000_000, folders=("mm",))
        importer.add("refs/heads/mm-stable", start, edits[:10])
        importer.write()
        importer.add("refs/heads/mm-unstable", git(repository, "rev-parse", "refs/heads/mm-stable"), edits[10:])
        importer.write()
    return {
        STABLE: git(repository, "rev-list", f"refs/heads/{STABLE}").split(),
        "mm-stable": git(repository, "rev-list", "-n10", "refs/heads/mm-stable").split(),
        "mm-unstable": git(repository, "rev-list", "-n20", "refs/heads/mm-unstable").split(),
    }


def make_cases(repository: Path, scratch: Path, *, count: int, seed: int) -> list[Case]:
    """`count` series, a quarter of each kind, the same for the same seed."""
    dice = random.Random(seed)  # noqa: S311 (made-up series)
    lines = ensure_branches(repository)
    plans = [_plan(KINDS[n % len(KINDS)], lines, repository, dice) for n in range(count)]
    authors = scratch / "authors.git"
    shutil.rmtree(scratch, ignore_errors=True)
    run(["git", "init", "--quiet", "--bare", "--template=", authors], env=git_environment())
    (authors / "objects" / "info" / "alternates").write_text(f"{repository / 'objects'}\n")
    files, importer = Files(repository), Importer(authors, _SPRING + 10_000_000)
    for number, plan in enumerate(plans):
        _write(plan, number, files, importer, dice)
    importer.write()
    return [_case(plan, number, authors, scratch / f"mails-{number}") for number, plan in enumerate(plans)]


def _plan(kind: str, lines: dict[str, list[str]], repository: Path, dice: random.Random) -> _Plan:
    line = dice.choice(list(lines))
    to = STABLE_LIST if line == STABLE else MM_LIST
    if kind == "tags only":
        if line == STABLE and dice.random() < 0.5:  # noqa: PLR2004 (every other one)
            version = dice.choice(git(repository, "tag", "--list", "v6.1.*").split())
            truth = git(repository, "rev-parse", f"refs/tags/{version}")
            return _Plan(kind, truth, line, dice.choice((version, version[1:])), "nobody@lists.example")
        tag = dice.choice(("6.1.y", "linux-6.1.y", "6.1")) if line == STABLE else line
        return _Plan(kind, lines[line][0], line, tag, "nobody@lists.example")
    if kind == "drifted contexts":
        # People post against what is there; some are a few commits behind.
        behind = 0 if dice.random() < 0.7 else dice.randrange(1, 5)  # noqa: PLR2004 (seven of ten)
        tag = line if dice.random() < 0.5 else ""  # noqa: PLR2004 (every other one)
        return _Plan(kind, lines[line][behind], line, tag, to)
    return _Plan(kind, dice.choice(lines[line]), line, "", dice.choice((to, to, "nobody@lists.example")))


def _write(plan: _Plan, number: int, files: Files, importer: Importer, dice: random.Random) -> None:
    count = dice.randint(1, _MOST_PATCHES)
    edits = _edits(files, plan.truth, dice, count=count, serial=number * 100, folders=_FOLDERS)
    if plan.kind == "drifted contexts":
        edits = _on_local_patch(edits, files, plan.truth, dice, number)
    importer.add(f"refs/heads/case-{number}", plan.truth, edits)


def _edits(
    files: Files, base: str, dice: random.Random, *, count: int, serial: int, folders: Sequence[str]
) -> list[Edit]:
    """`count` commits in a row, each of one to three files; some change again what an earlier one changed."""
    now: dict[str, bytes] = {}
    found = []
    for number in range(count):
        folder = dice.choice(folders)
        paths = dice.sample(files.below(base, folder), dice.randint(1, 3))
        if now and dice.random() < 0.3:  # noqa: PLR2004 (three of ten)
            paths[0] = dice.choice(list(now))
        changed = {p: edited(now.get(p) or files.read(base, p), dice, serial + number) for p in dict.fromkeys(paths)}
        now |= changed
        found.append(Edit(f"{folder}: Change it, step {serial + number}\n\nAs measured.\n", changed))
    return found


def _on_local_patch(edits: list[Edit], files: Files, base: str, dice: random.Random, number: int) -> list[Edit]:
    """The same series made on top of a local patch of all its files, which is never posted."""
    paths = sorted({path for edit in edits for path in edit.files})
    shifts = {path: shifted(files.read(base, path), dice, number) for path in paths}
    local = Edit("local: Never posted\n", shifts)
    return [
        local,
        *(Edit(e.message, {p: _carried(files.read(base, p), shifts[p], c) for p, c in e.files.items()}) for e in edits),
    ]


def _carried(before: bytes, shifted_content: bytes, after: bytes) -> bytes:
    """`after` with the lines that `shifted_content` has more than `before`, at their place near the top."""
    old, new = before.splitlines(keepends=True), shifted_content.splitlines(keepends=True)
    place = next(n for n, (one, other) in enumerate(zip(old, new, strict=False)) if one != other)
    more = new[place : place + len(new) - len(old)]
    lines = after.splitlines(keepends=True)
    return b"".join([*lines[:place], *more, *lines[place:]])


def _case(plan: _Plan, number: int, authors: Path, folder: Path) -> Case:
    start = git(authors, "rev-parse", f"case-{number}~{_patches(plan, number, authors)}")
    prefix = f"PATCH {plan.tag}".strip()
    options = [
        f"--subject-prefix={prefix}",
        f"--to={plan.to}",
        "--thread=shallow",
        "--abbrev=12",
        "-q",
        "-o",
        str(folder),
    ]
    if plan.kind == "base-commit":
        options.append(f"--base={plan.truth}")
    git(authors, "format-patch", *options, f"{start}..case-{number}")
    mails = [file.read_bytes().partition(b"\n")[2] for file in sorted(folder.iterdir())]
    mails = [_STAMP.sub(rb".\1.case%d.git." % number, mail) for mail in mails]
    if plan.kind == "tags only":
        mails = [_INDEX.sub(b"", mail) for mail in mails]
    return Case(plan.kind, plan.truth, plan.line, tuple(mails))


def _patches(plan: _Plan, number: int, authors: Path) -> int:
    """Posted commits: all above the base but for a local one."""
    count = int(git(authors, "rev-list", "--count", f"{plan.truth}..case-{number}"))
    return count - 1 if plan.kind == "drifted contexts" else count


if __name__ == "__main__":
    print(ensure_history(Path(__file__).resolve().parents[2] / ".cache" / "bench"))
