"""Watching git trees: fetch the branches into the mirror and record what is new."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.git import GitError
from server.core.locks import advisory_lock
from server.sources.mirror import mirror, record_revisions, tree_ref
from server.sources.models import Branch, MailingList, Revision, Tree

log = structlog.get_logger(__name__)

# Below Celery's soft limit, so that a slow fetch ends as an error on the tree and not as a killed worker.
FETCH_SECONDS = 200.0
_LONGEST_PAUSE = timedelta(hours=1)
_MOST_NEW_REVISIONS = 200


def fetch_tree(*, tree: Tree, timeout: float | None = FETCH_SECONDS) -> list[Revision]:
    """Fetch the watched branches of `tree`; returns the heads that moved.

    A failure is recorded on the tree and not raised: the next poll tries again, after a pause that grows with the time
    for which the tree has been failing. Does nothing while another process fetches the same tree.
    """
    with advisory_lock(f"sources.tree.{tree.pk}") as free:
        if not free:
            log.info("tree_fetch_busy", tree=tree.name)
            return []
        try:
            shas, missing = _fetch(tree, timeout)
        except GitError as error:
            _note_result(tree, error.message)
            return []
        moved = [r for branch, sha in shas.items() if (r := record_head(branch=branch, sha=sha))]
        _note_result(tree, f"no such branch: {', '.join(missing)}" if missing else "")
        return moved


def _fetch(tree: Tree, timeout: float | None) -> tuple[dict[Branch, str], list[str]]:
    """The fetched head of each branch that the remote has, and the names of those it has not."""
    repository = mirror()
    listed = repository.output("ls-remote", "--heads", "--", tree.url, timeout=timeout and min(timeout, 60.0))
    remote = {line.split("\t", 1)[1] for line in listed.decode(errors="replace").splitlines() if "\t" in line}
    branches = list(tree.branches.all())
    there = [b for b in branches if f"refs/heads/{b.name}" in remote]
    if there:
        # The plus sign takes forced updates as they are: revisions keep the old history.
        specs = [f"+refs/heads/{b.name}:{tree_ref(tree, b.name)}" for b in there]
        repository.output(
            "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--", tree.url, *specs, timeout=timeout
        )
    heads = {b: repository.resolve(tree_ref(tree, b.name)) for b in there}
    return {b: sha for b, sha in heads.items() if sha}, [b.name for b in branches if b not in there]


def _note_result(tree: Tree, error: str) -> None:
    now = clock.now()
    tree.polled_at, tree.last_error = now, error
    tree.failing_since = (tree.failing_since or now) if error else None
    tree.save(update_fields=["polled_at", "last_error", "failing_since"])
    if error:
        log.warning("tree_fetch_failed", tree=tree.name, error=error, failing_since=str(tree.failing_since))
    else:
        log.info("tree_fetched", tree=tree.name)


@transaction.atomic
def record_head(*, branch: Branch, sha: str) -> Revision | None:
    """Move `branch` to commit `sha` of the mirror; returns the new head, None if it stood there already.

    Revisions are recorded along the first parents down to the previous head, at most 200; a branch seen for the first
    time gets its head and the commit before, because a whole history would be a million rows that nobody asked for.
    """
    branch = Branch.objects.select_for_update(of=("self",)).select_related("head", "tree").get(pk=branch.pk)
    if branch.head and branch.head.sha == sha:
        return None
    repository = mirror()
    if branch.head and repository.resolve(branch.head.sha):
        commits = repository.commits(sha, f"^{branch.head.sha}", limit=_MOST_NEW_REVISIONS)
    else:
        commits = repository.commits(sha, limit=2)
    # A branch that was set back to an older commit has nothing new, but still another head.
    shas = [c.sha for c in reversed(commits)] or [sha]
    head = record_revisions(tree=branch.tree, shas=shas)[-1]
    branch.head, branch.head_at = head, clock.now()
    branch.save(update_fields=["head", "head_at"])
    log.info("head_moved", tree=branch.tree.name, branch=branch.name, sha=sha, revisions=len(shas))
    return head


def claim_due_trees() -> list[Tree]:
    """Enabled trees whose poll is due; each is given out once per poll time, whoever asks."""
    with transaction.atomic():
        rows = list(Tree.objects.select_for_update(skip_locked=True).filter(enabled=True))
        due = [t for t in rows if is_due(t, clock.now())]
        Tree.objects.filter(pk__in=[t.pk for t in due]).update(polled_at=clock.now())
    return due


def is_due(source: Tree | MailingList, now: datetime) -> bool:
    """A source that fails is asked after as long a pause as it has been failing for, an hour at most."""
    if source.polled_at is None:
        return True
    pause = timedelta(seconds=source.poll_seconds)
    if source.failing_since:
        pause = max(pause, min(source.polled_at - source.failing_since, _LONGEST_PAUSE))
    return now >= source.polled_at + pause


def find_tree(name: str) -> Tree:
    tree = Tree.objects.filter(name=name).first()
    if tree is None:
        raise DomainError("unknown-tree", f"there is no tree {name}")
    return tree
