"""Looking for blobs in the history of branches: along the first parents, then in everything that was merged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from server.core.git import GitError, Repository
from server.sources.bases.blobs import PreImages, content_at

_LOG = ("--literal-pathspecs", "log", "-z", "-m", "--raw", "--no-abbrev", "--no-renames", "--format=%x01%H %P")
_NOTHING = "0" * 40
# Commits that are looked at whole in merged history; each costs a few milliseconds.
_MOST_LOOKED_AT = 500


@dataclass(frozen=True)
class Match:
    """A commit that holds `found` of the `wanted` blobs; `searched` is False when time ran out before the end."""

    sha: str
    found: int
    wanted: int
    searched: bool = True

    @property
    def full(self) -> bool:
        return self.found == self.wanted


@dataclass(frozen=True)
class _Step:
    """One commit against one parent: what it changed, path to blobs before and after."""

    sha: str
    parents: tuple[str, ...]
    changes: Mapping[str, tuple[str, str]]


def newest_match(repository: Repository, head: str, wanted: PreImages, *, seconds: float) -> Match | None:
    """The newest commit on the first-parent line of `head` with most of the blobs; None if none holds any.

    A commit that changes none of the paths has what its parent has, so that only changes to them are read.
    """
    total = len(wanted.blobs)
    content = content_at(repository, head, wanted.blobs)
    best = Match(head, wanted.found_in(content), total)
    if best.full or _cannot_be_there(repository, wanted):
        return best if best.found else None
    try:
        for step in _steps(repository, ["--first-parent", head], wanted, seconds):
            for path, (before, _) in step.changes.items():
                content[path] = before
            found = wanted.found_in(content)
            if found > best.found and step.parents:
                best = Match(step.parents[0], found, total)
                if best.full:
                    break
    except GitError as error:
        if error.code != "git-timeout":
            raise
        best = Match(best.sha, best.found, total, searched=False)
    return best if best.found else None


def _cannot_be_there(repository: Repository, wanted: PreImages) -> bool:
    """Whether the mirror holds none of the blobs anywhere, so that no history can."""
    asked = "".join(f"{blob}\n" for blob in wanted.blobs.values()).encode()
    said = repository.output("cat-file", "--batch-check", stdin=asked).decode(errors="replace")
    return all(line.endswith(" missing") for line in said.splitlines())


def merged_match(repository: Repository, heads: Sequence[str], wanted: PreImages, *, seconds: float) -> Match | None:
    """The newest commit anywhere below `heads` that holds all of the blobs, also on lines that were merged."""
    if not heads or _cannot_be_there(repository, wanted):
        return None
    seen: set[str] = set()
    try:
        for step in _steps(repository, ["--full-history", *heads], wanted, seconds):
            for sha in _promising(step, wanted):
                if sha in seen:
                    continue
                seen.add(sha)
                found = wanted.found_in(content_at(repository, sha, wanted.blobs))
                if found == len(wanted.blobs):
                    return Match(sha, found, found)
                if len(seen) >= _MOST_LOOKED_AT:
                    return None
    except GitError as error:
        if error.code != "git-timeout":
            raise
    return None


def _promising(step: _Step, wanted: PreImages) -> Iterator[str]:
    """The commit, if it brought one of the blobs; its parents, if it took one away."""
    pairs = [(wanted.blobs[path], change) for path, change in step.changes.items() if path in wanted.blobs]
    if any(old.startswith(blob) for blob, (old, _) in pairs):
        yield from step.parents
    if any(new.startswith(blob) for blob, (_, new) in pairs):
        yield step.sha


def _steps(repository: Repository, what: Sequence[str], wanted: PreImages, seconds: float) -> Iterator[_Step]:
    paths = sorted(wanted.blobs)
    step: _Step | None = None
    changes: dict[str, tuple[str, str]] = {}
    entry = ""
    for record in repository.records(*_LOG, *what, "--", *paths, seconds=seconds):
        text = record.lstrip("\n")
        if text.startswith("\x01"):
            if step:
                yield step
            sha, *parents = text[1:].split()
            changes = {}
            step = _Step(sha, tuple(parents), changes)
        elif text.startswith(":") and not entry:
            entry = text
        elif entry:
            old, new = entry.split()[2:4]
            changes[record] = ("-" if old == _NOTHING else old, "-" if new == _NOTHING else new)
            entry = ""
    if step:
        yield step
