"""The one bare repository that holds all watched trees and all applied series, and the names of its refs."""

from collections.abc import Collection
from pathlib import Path
from uuid import uuid4

from django.conf import settings

from server.core.programs.git import Commit, GitError, Repository, run
from server.sources.models import Revision, Tree

SERIES_REFS = "refs/tidemark/series"
_BASE_REFS = "refs/tidemark/bases"
OLD_REFS = "refs/tidemark/old"
_REVERT_REFS = "refs/tidemark/reverts"
# What watched trees published, then and now: what one of these holds is nobody's patch.
PUBLISHED_REFS = ("refs/tidemark/trees", "refs/tidemark/tags", OLD_REFS)
# Commits asked of one git log: their ids fit into its command line.
_AT_ONCE = 1000
# A subject is a line; one that fills pages is somebody's joke.
_LONGEST_SUBJECT = 1000
_LONGEST_AUTHOR = 300
# Upkeep, not git, decides when objects go; builders may ask for any commit by its id.
_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[gc]
\tauto = 0
[uploadpack]
\tallowAnySHA1InWant = true
"""


def mirror() -> Repository:
    """The shared mirror, made when it is first asked for."""
    return bare_repository(Path(settings.STATE_DIR) / "mirror.git")


def bare_repository(path: Path) -> Repository:
    """The bare repository at `path`; making it twice at once is harmless."""
    repository = Repository(path)
    if not ((path / "HEAD").exists() and (path / "config").exists()):
        path.mkdir(mode=0o750, parents=True, exist_ok=True)
        # Before git makes HEAD, so that one that was cut off here is never taken for whole.
        written = path / f"config.{uuid4().hex}"
        written.write_text(_CONFIG)
        written.replace(path / "config")
        run("init", "--quiet", "--bare", "--template=", str(path), cwd=path)
    return repository


def tree_refs(tree: Tree) -> str:
    return f"refs/tidemark/trees/{tree.name}/"


def tree_ref(tree: Tree, branch: str) -> str:
    return f"{tree_refs(tree)}{branch}"


def tag_refs(tree: Tree) -> str:
    return f"refs/tidemark/tags/{tree.name}/"


def tag_ref(tree: Tree, tag: str) -> str:
    return f"{tag_refs(tree)}{tag}"


def old_ref(sha: str) -> str:
    """What holds a commit that a branch or tag was forced away from, or whose branch was deleted."""
    return f"{OLD_REFS}/{sha}"


def series_ref(series_id: int, index: int) -> str:
    """Where patch `index` of a series lies as a commit: code of its author, whom builders do not trust.

    Index 0 is its base where that holds prerequisites, patches of other series.
    """
    return f"{SERIES_REFS}/{series_id}/{index}"


def base_ref(series_id: int) -> str:
    """What keeps the base of a series, code of a watched branch, should that branch be forced away from it.

    It only keeps it: below this name nothing is trusted, since who posts a series says what its base is.
    """
    return f"{_BASE_REFS}/{series_id}"


def revert_ref(sha: str, *, foreign: bool) -> str:
    """What holds a commit that takes another one back; below SERIES_REFS where it is `foreign`, made of a series."""
    return f"{SERIES_REFS}/reverts/{sha}" if foreign else f"{_REVERT_REFS}/{sha}"


def record_revisions(*, tree: Tree, shas: list[str], foreign: bool | None = None) -> list[Revision]:
    """Rows for commits of the mirror, given oldest first; those that exist are returned as they are.

    `foreign` says whether they hold code of mails that no watched tree published. Who fetched or made them knows it;
    else git is asked. What a watched tree publishes is foreign no longer.
    """
    known = Revision.objects.in_bulk(shas, field_name="sha")
    if foreign is False and (adopted := [row for row in known.values() if row.foreign]):
        for row in adopted:
            row.foreign = False
        Revision.objects.bulk_update(adopted, ["foreign"])
    missing = list(dict.fromkeys(sha for sha in shas if sha not in known))
    for start in range(0, len(missing), _AT_ONCE):
        some = missing[start : start + _AT_ONCE]
        unpublished = _unpublished(some) if foreign is None else set(some if foreign else ())
        known |= _new_revisions(tree, some, unpublished)
    return [known[sha] for sha in shas]


def _unpublished(shas: list[str]) -> set[str]:
    """Those of `shas` that no branch, tag or former head of a watched tree holds."""
    published = (f"--glob={refs}/*" for refs in PUBLISHED_REFS)
    walked = mirror().output("rev-list", *shas, "--not", *published)
    return set(walked.decode().split()).intersection(shas)


def _new_revisions(tree: Tree, shas: list[str], foreign: Collection[str]) -> dict[str, Revision]:
    commits = {commit.sha: commit for commit in mirror().commits("--no-walk=unsorted", *shas)}
    if lost := [sha for sha in shas if sha not in commits]:
        raise GitError("git-failed", f"git log: nothing about commit {lost[0]}")
    # Another process may record the same commits: the first one wins, both read what it wrote.
    made = [_row(tree, commits[sha], foreign=sha in foreign) for sha in shas]
    Revision.objects.bulk_create(made, ignore_conflicts=True)
    rows = Revision.objects.in_bulk(shas, field_name="sha")
    parents = {sha: commits[sha].parents[0] for sha in shas if commits[sha].parents}
    known = Revision.objects.in_bulk(list(parents.values()), field_name="sha")
    orphans = [row for sha, row in rows.items() if row.parent_id is None and parents.get(sha) in known]
    for row in orphans:
        row.parent = known[parents[row.sha]]
    Revision.objects.bulk_update(orphans, ["parent"])
    return rows


def _row(tree: Tree, commit: Commit, *, foreign: bool) -> Revision:
    return Revision(
        sha=commit.sha,
        tree=tree,
        tree_sha=commit.tree,
        subject=commit.subject.replace("\0", "")[:_LONGEST_SUBJECT],
        author=commit.author.replace("\0", "")[:_LONGEST_AUTHOR],
        committed_at=commit.committed_at,
        foreign=foreign,
    )


def ref_of(revision: Revision) -> str:
    """A ref that reaches this revision. Builders trust what it names unless it lies below SERIES_REFS.

    So whose code it is decides on its kind, and not which rows name the revision today.
    """
    if revision.foreign:
        return _foreign_ref(revision)
    branch = revision.tree.branches.filter(head=revision, deleted_at=None).order_by("pk").first()
    return tree_ref(revision.tree, branch.name) if branch else _holding_ref(revision)


def _foreign_ref(revision: Revision) -> str:
    """Of the series that made it, was applied to it, or of which a patch was taken back."""
    patch = revision.patches.order_by("pk").first()
    if patch is not None:
        return series_ref(patch.series_id, patch.index)
    return _first_ref(f"--points-at={revision.sha}", f"{SERIES_REFS}/") or _unheld(revision)


def _holding_ref(revision: Revision) -> str:
    """Its own ref where it takes another commit back; a branch, tag or old commit that holds it.

    Its own tree first: others hold most of its commits as well, and each that is asked costs a walk.
    """
    contains = f"--contains={revision.sha}"
    own = revert_ref(revision.sha, foreign=False)
    asked = [("", own), *((contains, refs) for refs in (tree_refs(revision.tree), tag_refs(revision.tree)))]
    asked += [(contains, f"{refs}/") for refs in reversed(PUBLISHED_REFS)]
    found = (_first_ref(option, refs) for option, refs in asked)
    return next(filter(None, found), "") or _unheld(revision)


def _first_ref(option: str, refs: str) -> str:
    options = [option] if option else []
    found = mirror().run("for-each-ref", "--count=1", "--format=%(refname)", *options, refs).stdout
    return found.decode().strip()


def _unheld(revision: Revision) -> str:
    """A name that builders take for a stranger's: whose code it is nobody knows any more."""
    return f"{SERIES_REFS}/unheld/{revision.sha}"
