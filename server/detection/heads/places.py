"""Where revisions stand on a branch: a number that grows along it, so that gaps are what was not measured."""

from server.detection.models import MeasuredHead
from server.sources.mirror import mirror
from server.sources.models import Branch, Revision, Tree, WantedRevision


def place_on(branch: Branch, revision: Revision) -> int | None:
    """The place of a revision among the branch's measured heads; None where it cannot stand among them.

    Along one line of history places count first parents, so the first head's place is the length of its history. A head
    that the branch was forced to, without any line to the newest one measured, follows that by one: the order of head
    moves is all the order there is, and nothing between the two can be bisected. Raises GitError.
    """
    heads = MeasuredHead.objects.filter(branch=branch).select_related("revision").order_by("-place")
    newest = heads.first()
    if newest is None:
        return int(mirror().output("rev-list", "--first-parent", "--count", revision.sha, "--"))
    ahead = first_parents_between(newest.revision.sha, revision.sha)
    if ahead is not None:
        return newest.place + ahead
    behind = first_parents_between(revision.sha, newest.revision.sha)
    if behind is None:
        return newest.place + 1
    place = newest.place - behind
    # Between two heads that share no line there is room by number, but no sense.
    before, after = heads.filter(place__lte=place).first(), heads.filter(place__gte=place).last()
    if place < 0 or (before and first_parents_between(before.revision.sha, revision.sha) != place - before.place):
        return None
    if after and first_parents_between(revision.sha, after.revision.sha) != after.place - place:
        return None
    return place


def first_parents_between(older: str, newer: str) -> int | None:
    """How many first parents lead from commit `newer` down to `older`; None if `older` is not on that line."""
    repository = mirror()
    done = repository.run("rev-list", "--first-parent", "--count", newer, f"^{older}", "--")
    if done.code != 0:
        return None
    count = int(done.stdout)
    return count if repository.resolve(f"{newer}~{count}") == older else None


def branch_of(wanted: WantedRevision) -> Branch | None:
    """The branch on whose timelines a wanted revision belongs: the one that it was head of or was merged to.

    A tag belongs to the first branch that has it on its first-parent line.
    """
    if wanted.why == WantedRevision.Why.TAG:
        return _branch_with(wanted.tree, wanted.revision)
    # Names of branches hold no colon; "BRANCH: merged by PERSON".
    name = wanted.detail.partition(": ")[0]
    return Branch.objects.filter(tree=wanted.tree, name=name).first()


def _branch_with(tree: Tree, revision: Revision) -> Branch | None:
    standing = Branch.objects.filter(tree=tree, deleted_at=None, head__isnull=False).select_related("head")
    for branch in standing.order_by("name"):
        if branch.head and first_parents_between(revision.sha, branch.head.sha) is not None:
            return branch
    return None
