"""Watching git trees: ask each remote what it has, bring what is new into the mirror, record each step."""

import structlog
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.locks import advisory_lock
from server.sources.mirror import mirror
from server.sources.models import Revision, Tree
from server.sources.polling import FETCH_SECONDS, is_due, note_failure, note_success, unforeseen_noted
from server.sources.trees.news import compare, standing_refs
from server.sources.trees.policy import catch_up
from server.sources.trees.refnames import MOST_BRANCHES, MOST_TAGS, select, unmatched
from server.sources.trees.remotes import LIST_SECONDS, Listing, RefGoneError, list_remote
from server.sources.trees.taking import take

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
