"""Watching git trees: ask each remote what it has, bring what is new into the mirror and the rows."""

import fnmatch
import re
import tempfile
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from django.db import transaction

from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.files import remove_tree
from server.core.programs.git import Completed, GitError, Repository
from server.core.programs.sandbox import Limits
from server.sources.mirror import mirror, old_ref, tag_ref, tag_refs, tree_ref, tree_refs
from server.sources.models import Branch, Revision, Tree
from server.sources.polls import FETCH_SECONDS, is_due, note_failure, note_success, unforeseen_noted, within_room
from server.sources.trees.heads import catch_up, examine, leaves_behind, record_steps

# Letters that stay themselves in pages, mails, refs and on command lines. The agents refuse others, too.
_PART = re.compile(r"[A-Za-z0-9_+@][A-Za-z0-9._+@-]*")
# With the name of a tree and what stands before it a ref has 200 characters, the most that agents take.
LONGEST_NAME = 120
MOST_BRANCHES = 1000
MOST_TAGS = 20_000
_NAMED = 3


@dataclass(frozen=True)
class Selection:
    """Names with their object ids, and in `complaints` what was refused and why."""

    refs: dict[str, str]
    complaints: tuple[str, ...]


def is_usable(name: str) -> bool:
    """Whether a branch or tag may have this name here; stricter than git."""
    parts = name.split("/")
    return len(name) <= LONGEST_NAME and ".." not in name and all(_is_part(part) for part in parts)


def _is_part(part: str) -> bool:
    return bool(_PART.fullmatch(part)) and not part.endswith((".", ".lock"))


def is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def select(
    kind: str, refs: Mapping[str, str], patterns: Iterable[str], *, most: int, known: Container[str]
) -> Selection:
    """What of `refs` matches a pattern. `kind` is the word for complaints: branch or tag.

    Where more than `most` match, those in `known` are taken first, so that a flood of names pushes nothing out.
    """
    wanted = re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns) or r"(?!)")
    names = {name for name in refs if wanted.fullmatch(name)}
    hostile = sorted(name for name in names if not is_usable(name))
    names.difference_update(hostile)
    below = sorted(name for name in names if any(parent in names for parent in parents(name)))
    names.difference_update(below)
    taken = sorted(names, key=lambda name: (name not in known, name))[:most]
    return Selection(
        refs={name: refs[name] for name in sorted(taken)},
        complaints=(
            *_refused(hostile, f"{kind} names with strange characters or more than {LONGEST_NAME} of them"),
            *_refused(below, f"{kind} names below another {kind}"),
            *([f"{len(names)} {kind} names match, {most} are watched"] if len(names) > most else []),
        ),
    )


def parents(name: str) -> list[str]:
    """`a/b/c`: `a`, `a/b`. None of them can be a ref beside it."""
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def in_the_way(name: str, others: Iterable[str]) -> list[str]:
    """Those of `others` that cannot be refs beside `name`."""
    above = set(parents(name))
    return [other for other in others if other in above or other.startswith(f"{name}/")]


def _refused(names: list[str], why: str) -> list[str]:
    if not names:
        return []
    shown = ", ".join(ascii(name)[:60] for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"refused {why}: {shown}{more}"]


def unmatched(kind: str, refs: Mapping[str, str], patterns: Iterable[str]) -> list[str]:
    """A complaint about patterns that match nothing: probably a mistake, or the branch was deleted."""
    missing = [p for p in patterns if not (any(fnmatch.fnmatchcase(n, p) for n in refs) if is_glob(p) else p in refs)]
    return [f"no such {kind}: {', '.join(missing)}"] if missing else []


# A server that has not named its refs by then hangs.
LIST_SECONDS = 30.0
_LINE = re.compile(r"([0-9a-f]{40})\trefs/(heads|tags)/([^\n]+)")
# A million refs fit.
_LISTING = Limits(file_bytes=2**20, memory_bytes=512 * 2**20)
# Several times all of the kernel's history: what is larger is no kernel tree.
_FETCHING = Limits(file_bytes=32 * 2**30, memory_bytes=8 * 2**30)
# Objects are checked on arrival, so that nobody's trick (a path into .git, a harmful .gitmodules) gets into the mirror.
# These say only that some old program wrote a commit or tree oddly; histories that hold such objects cannot change.
_HARMLESS = (
    *("badDate", "badDateOverflow", "badEmail", "badName", "badTagName", "badTimezone", "extraHeaderEntry"),
    *("missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail"),
    *("missingTaggerEntry", "multipleAuthors", "nulInCommit", "zeroPaddedDate", "zeroPaddedFilemode"),
)
_CHECKS = {"fetch.fsckObjects": "true", "core.alternateRefsCommand": "true"} | {
    f"fetch.fsck.{name}": "ignore" for name in _HARMLESS
}


@dataclass(frozen=True)
class Listing:
    """Branches and tags of a remote: name to object id. A tag's object may be a tag or a commit."""

    heads: dict[str, str]
    tags: dict[str, str]


class RefGoneError(GitError):
    """A ref went away between listing and fetching."""


def list_remote(repository: Repository, url: str, *, tags: bool, timeout: float | None) -> Listing:
    """The refs of `url`. Raises GitError when it cannot be reached, talks nonsense or hangs."""
    kinds = ["--heads", "--tags"] if tags else ["--heads"]
    done = repository.run("ls-remote", "--refs", *kinds, "--", url, timeout=timeout, limits=_LISTING)
    _check(done, "ls-remote")
    found: dict[str, dict[str, str]] = {"heads": {}, "tags": {}}
    for line in done.stdout.decode(errors="backslashreplace").split("\n"):
        if ref := _LINE.fullmatch(line):
            found[ref[2]][ref[3]] = ref[1]
    return Listing(found["heads"], found["tags"])


def fetch_refs(repository: Repository, url: str, refs: Iterable[str], *, timeout: float | None) -> None:
    """Bring the objects of `refs` into the repository, without changing any ref of it.

    Raises RefGoneError when the remote no longer has one of them, GitError when anything else goes wrong. They come in
    whole or not at all: git leaves what it has of a pack that broke off, and a server can send one without end.
    """
    objects = repository.git_dir / "objects"
    limits = within_room(_FETCHING, repository.git_dir)
    # By that name upkeep knows what a killed worker left.
    apart = Path(tempfile.mkdtemp(prefix="incoming-", dir=objects))
    try:
        done = repository.run(
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--stdin", "--", url),
            stdin="".join(f"{ref}\n" for ref in refs).encode(),
            timeout=timeout,
            extra=_configuration(_CHECKS) | _written_to(apart, objects),
            limits=limits,
        )
        if done.code and "couldn't find remote ref" in done.stderr:
            raise RefGoneError("ref-gone", f"git fetch: {done.stderr.strip()}")
        _check(done, "fetch")
        _take_in(apart, objects)
    finally:
        remove_tree(apart)


def _written_to(apart: Path, objects: Path) -> dict[str, str]:
    return {"GIT_OBJECT_DIRECTORY": str(apart), "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"'}


def _take_in(apart: Path, objects: Path) -> None:
    """Move what came to its place: a pack counts from the moment that its index is there."""
    for path in sorted(apart.rglob("*"), key=lambda path: path.suffix == ".idx"):
        if path.is_file() and path.suffix != ".keep":
            target = objects / path.relative_to(apart)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)


def _check(done: Completed, verb: str) -> None:
    if done.code:
        said = done.stderr.strip() or f"exit status {done.code}"
        raise GitError("git-failed", f"git {verb}: {said}", stderr=done.stderr)


def _configuration(values: dict[str, str]) -> dict[str, str]:
    """Variables that set git's configuration for one run."""
    numbered = list(enumerate(values.items()))
    keys = {f"GIT_CONFIG_KEY_{n}": key for n, (key, _) in numbered}
    return (
        keys | {f"GIT_CONFIG_VALUE_{n}": value for n, (_, value) in numbered} | {"GIT_CONFIG_COUNT": str(len(values))}
    )


@dataclass(frozen=True)
class News:
    """Branches and tags to be fetched, names to object ids, and branches that are gone. False when there is none."""

    heads: dict[str, str]
    tags: dict[str, str]
    gone: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.heads or self.tags or self.gone)


def standing_refs(repository: Repository, tree: Tree) -> Listing:
    """What the mirror has of `tree`."""
    heads, tags = tree_refs(tree), tag_refs(tree)
    lines = repository.output("for-each-ref", "--format=%(objectname) %(refname)", heads, tags).decode().splitlines()
    refs = {ref: sha for sha, ref in (line.split(" ", 1) for line in lines)}
    return Listing(
        {ref.removeprefix(heads): sha for ref, sha in refs.items() if ref.startswith(heads)},
        {ref.removeprefix(tags): sha for ref, sha in refs.items() if ref.startswith(tags)},
    )


def compare(rows: Mapping[str, Branch], standing: Listing, watched: Listing, *, gone: set[str]) -> News:
    """A branch is news, too, where mirror and row disagree: a predecessor was killed between the two."""
    settled = {
        name: row.head.sha
        for name, row in rows.items()
        if row.head and row.deleted_at is None and standing.heads.get(name) == row.head.sha
    }
    return News(
        heads={name: sha for name, sha in watched.heads.items() if settled.get(name) != sha},
        tags={name: sha for name, sha in watched.tags.items() if standing.tags.get(name) != sha},
        gone=frozenset(gone),
    )


# Taking news of a tree into the mirror and the rows, so that being killed anywhere loses nothing.
#
# The order matters. Objects come first, held by no ref: nothing prunes them. What branches leave behind gets its ref
# before theirs move. The rows come before the refs: rows that were not written are missed at the next poll because
# the refs still differ from the remote.

_SHOWN = 3


def take(
    repository: Repository,
    tree: Tree,
    rows: Mapping[str, Branch],
    standing: Listing,
    news: News,
    *,
    timeout: float | None,
) -> tuple[list[Revision], tuple[str, ...]]:
    """Fetch and record `news`; returns the heads that moved, and complaints about those that did not come."""
    refs = [*(f"refs/heads/{name}" for name in news.heads), *(f"refs/tags/{name}" for name in news.tags)]
    if refs:
        fetch_refs(repository, tree.url, refs, timeout=timeout)
    heads, tags = _commits(repository, news.heads), _commits(repository, news.tags)
    # Tags of trees and blobs exist; they get a ref here, so that they are no news again, but no row.
    objects = _known(repository, news.tags.values())
    steps = [examine(repository, n, sha, branch=rows.get(n), merges_by=tree.merges_by) for n, sha in heads.items()]
    _make_way(repository, tree, rows, standing, News(heads, news.tags, news.gone))
    moved = record_steps(tree=tree, steps=[step for step in steps if step], gone=news.gone, tags=tags)
    moves = {tree_ref(tree, name): sha for name, sha in heads.items()}
    moves |= {tag_ref(tree, name): sha for name, sha in news.tags.items() if sha in objects}
    _update_refs(repository, moves)
    return moved, _lost(news.heads.keys() - heads.keys())


def _make_way(repository: Repository, tree: Tree, rows: Mapping[str, Branch], standing: Listing, news: News) -> None:
    """Give a ref to every commit that would lose its own, then delete the refs of what is gone or in the way."""
    leaving: list[tuple[str | None, str | None]] = []
    leaving += [(standing.heads.get(name), sha) for name, sha in news.heads.items()]
    leaving += [(_head(rows.get(name)), sha) for name, sha in news.heads.items()]
    old_heads = {n for name in news.heads for n in in_the_way(name, standing.heads)} | news.gone
    old_tags = {n for name in news.tags for n in in_the_way(name, standing.tags)}
    leaving += [(sha, None) for name in old_heads for sha in (standing.heads.get(name), _head(rows.get(name)))]
    # Tags are objects of their own, which no later commit holds.
    leaving += [(standing.tags.get(name), None) for name in old_tags | news.tags.keys()]
    kept = [before for before, after in leaving if before and leaves_behind(repository, before, after)]
    _update_refs(repository, {old_ref(sha): sha for sha in sorted(_known(repository, kept))})
    doomed = [tree_ref(tree, name) for name in sorted(old_heads & standing.heads.keys())]
    doomed += [tag_ref(tree, name) for name in sorted(old_tags)]
    if doomed:
        repository.output("update-ref", "--stdin", stdin="".join(f"delete {ref}\n" for ref in doomed).encode())


def _head(row: Branch | None) -> str | None:
    return row.head.sha if row and row.head else None


def _update_refs(repository: Repository, refs: Mapping[str, str]) -> None:
    """All of them in one step, or none."""
    if refs:
        lines = "".join(f"update {ref} {sha}\n" for ref, sha in refs.items())
        repository.output("update-ref", "--stdin", stdin=lines.encode())


def _commits(repository: Repository, refs: Mapping[str, str]) -> dict[str, str]:
    """Names to commits, of those of `refs` (names to object ids) that are commits or tags of commits, and are there."""
    answers = _asked(repository, [f"{sha}^{{commit}}" for sha in refs.values()])
    return {name: answer for name, answer in zip(refs, answers, strict=True) if answer}


def _known(repository: Repository, ids: Iterable[str]) -> set[str]:
    """Those of `ids` that are objects of the mirror."""
    return {answer for answer in _asked(repository, list(ids)) if answer}


def _asked(repository: Repository, names: list[str]) -> list[str]:
    """The object id of each of `names`, or nothing."""
    if not names:
        return []
    stdin = "".join(f"{name}\n" for name in names).encode()
    answers = repository.output("cat-file", "--batch-check=%(objectname)", stdin=stdin).decode().splitlines()
    return ["" if " " in answer else answer for answer in answers]


def _lost(names: Iterable[str]) -> tuple[str, ...]:
    """Probably moved on since they were listed; the next poll will tell."""
    some = sorted(names)
    return (f"did not come, or are no commits: branches {', '.join(some[:_SHOWN])}",) if some else ()


log = structlog.get_logger(__name__)


def fetch_tree(*, tree: Tree, timeout: float | None = FETCH_SECONDS) -> list[Revision]:
    """Look for news of `tree` and fetch them; returns the heads that moved.

    A failure is recorded on the tree and not raised: the next poll tries again, after a pause that grows with each
    failure. Does nothing while another process fetches the same tree.
    """
    return fetch_if_free(tree=tree, timeout=timeout) or []


def fetch_if_free(*, tree: Tree, timeout: float | None) -> list[Revision] | None:
    """The same; None while another process fetches the tree."""
    with advisory_lock(f"sources.tree.{tree.pk}") as free, unforeseen_noted(tree):
        if not free:
            log.info("tree_fetch_busy", tree=tree.name)
            return None
        try:
            moved, complaints = _poll(tree, timeout)
        except (DomainError, OSError) as error:
            note_failure(tree, str(error) + _advice(tree, error))
            return []
        note_success(tree, "; ".join(complaints))
        return moved


def _advice(tree: Tree, error: Exception) -> str:
    """A first fetch may need an hour, and would need it again at each poll."""
    if tree.fetched_at is None and isinstance(error, DomainError) and error.code == "git-timeout":
        return f"; manage.py fetch_tree {tree.name} fetches without a limit of time"
    return ""


def _poll(tree: Tree, timeout: float | None) -> tuple[list[Revision], tuple[str, ...]]:
    try:
        return _look(tree, timeout)
    except RefGoneError:
        # It was deleted or renamed between the two questions to the remote: ask once more.
        return _look(tree, timeout)


def _look(tree: Tree, timeout: float | None) -> tuple[list[Revision], tuple[str, ...]]:
    repository = mirror()
    rows = {branch.name: branch for branch in tree.branches.select_related("head")}
    living = {name for name, branch in rows.items() if branch.head and branch.deleted_at is None}
    # Rows made by hand name branches as well as patterns do.
    patterns = tree.branch_patterns or sorted(rows)
    if not patterns:
        raise DomainError("nothing-watched", "no branch of it is named", permanent=False)
    listing = list_remote(repository, tree.url, tags=bool(tree.tag_patterns), timeout=LIST_SECONDS)
    if living and not listing.heads:
        # More likely a broken or emptied server than that somebody deleted every branch one by one.
        raise DomainError("remote-empty", f"{tree.url} names no branch at all", permanent=False)
    standing = standing_refs(repository, tree)
    heads = select("branch", listing.heads, patterns, most=MOST_BRANCHES, known=living)
    tags = select("tag", listing.tags, tree.tag_patterns, most=MOST_TAGS, known=standing.tags.keys())
    news = compare(rows, standing, Listing(heads.refs, tags.refs), gone=living - listing.heads.keys())
    moved: list[Revision] = []
    lost: tuple[str, ...] = ()
    if news:
        moved, lost = take(repository, tree, rows, standing, news, timeout=timeout)
    else:
        catch_up(tree, rows.values())
    complaints = (*unmatched("branch", listing.heads, patterns), *heads.complaints, *tags.complaints)
    return moved, (*complaints, *lost)


def claim_due_trees() -> list[Tree]:
    """Enabled trees whose poll is due; each is given out once per poll time, whoever asks."""
    with transaction.atomic():
        rows = list(Tree.objects.select_for_update(skip_locked=True).filter(enabled=True))
        due = [t for t in rows if is_due(t, clock.now())]
        Tree.objects.filter(pk__in=[t.pk for t in due]).update(polled_at=clock.now())
    return due


def find_tree(name: str) -> Tree:
    tree = Tree.objects.filter(name=name).first()
    if tree is None:
        raise DomainError("unknown-tree", f"there is no tree {name}")
    return tree
