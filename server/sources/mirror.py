"""The one bare repository that holds all watched trees and all applied series."""

from pathlib import Path

from django.conf import settings

from server.core.git import Repository, run
from server.sources.models import Revision, Tree

SERIES_REFS = "refs/tidemark/series"
_BASE_REFS = "refs/tidemark/bases"


def mirror() -> Repository:
    """The shared mirror, made when it is first asked for."""
    return bare_repository(Path(settings.STATE_DIR) / "mirror.git")


def bare_repository(path: Path) -> Repository:
    """The bare repository at `path`; making it twice at once is harmless."""
    repository = Repository(path)
    if not ((path / "HEAD").exists() and (path / "config").exists()):
        path.mkdir(parents=True, exist_ok=True)
        run("init", "--quiet", "--bare", "--template=", str(path), cwd=path)
        # Upkeep, not git, decides when objects go; builders may ask for any commit by its id.
        repository.output("config", "gc.auto", "0")
        repository.output("config", "uploadpack.allowAnySHA1InWant", "true")
    return repository


def tree_ref(tree: Tree, branch: str) -> str:
    return f"refs/tidemark/trees/{tree.name}/{branch}"


def series_ref(series_id: int, index: int) -> str:
    """Where patch `index` of a series lies as a commit: code of its author, whom builders do not trust."""
    return f"{SERIES_REFS}/{series_id}/{index}"


def base_ref(series_id: int) -> str:
    """What holds the base of a series, code of a watched branch, should that branch be forced away from it."""
    return f"{_BASE_REFS}/{series_id}"


def record_revisions(*, tree: Tree, shas: list[str]) -> list[Revision]:
    """Rows for commits of the mirror, given oldest first; those that exist are returned as they are."""
    known = Revision.objects.in_bulk(shas, field_name="sha")
    missing = [sha for sha in shas if sha not in known]
    if missing:
        commits = {c.sha: c for c in mirror().commits("--no-walk=unsorted", *missing)}
        for sha in missing:
            commit = commits[sha]
            parent = Revision.objects.filter(sha=commit.parents[0]).first() if commit.parents else None
            known[sha], _ = Revision.objects.get_or_create(
                sha=sha,
                defaults={
                    "tree": tree,
                    "tree_sha": commit.tree,
                    "parent": parent,
                    "subject": commit.subject.replace("\0", ""),
                    "author": commit.author[:300],
                    "committed_at": commit.committed_at,
                },
            )
    return [known[sha] for sha in shas]


def ref_of(revision: Revision) -> str:
    """A ref that reaches this revision: of a series that made it or was applied to it, else of its tree.

    A branch may be forced away from the base of a series, or never have held it: the ref of the series stays.
    """
    patch = revision.patches.order_by("pk").first()
    if patch is not None:
        return series_ref(patch.series_id, patch.index)
    series = revision.series_on_it.order_by("pk").first()
    if series is not None:
        return base_ref(series.pk)
    branch = revision.tree.branches.order_by("pk").first()
    return tree_ref(revision.tree, branch.name if branch else "HEAD")
