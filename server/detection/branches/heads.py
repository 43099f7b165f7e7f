"""Measured heads: the reference they are measured against, their places on the branch, and their trials."""

import re
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.states import new_trace
from server.detection.models import MeasuredHead
from server.lab.models import Machine, Trial
from server.lab.trials.question import Ask, want_trial
from server.sources.measure_rules import benchmarks_for
from server.sources.mirror import mirror, record_revisions, tag_ref
from server.sources.models import Branch, Revision, Tree, WantedRevision
from server.sources.trees.fetch import is_usable

log = structlog.get_logger(__name__)

_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def pinned_reference(tree: Tree, first: Revision) -> Revision | None:
    """The tree's pinned revision; None, with the reason in the row, while its `reference` names nothing in the mirror.

    What was pinned stays: a tag that the remote moves pins nothing else. Only another text in `reference` does, and
    begins new timelines. Without a reference, and before anything was measured, `first` becomes it.
    """
    pinned = tree.pinned
    if pinned is not None and tree.reference in ("", tree.pinned_as):
        return pinned
    if not tree.reference:
        return _pin(tree, first)
    sha = _resolve(tree)
    if sha is None:
        problem = f"reference {tree.reference} is no tag of this tree that is watched, and no commit of the mirror"
        _tell(tree, problem)
        return None
    return _pin(tree, record_revisions(tree=tree, shas=[sha])[0])


def _resolve(tree: Tree) -> str | None:
    names = [tag_ref(tree, tree.reference)] if is_usable(tree.reference) else []
    names += [tree.reference] if _COMMIT.fullmatch(tree.reference) else []
    return next((sha for name in names if (sha := mirror().resolve(name))), None)


def _pin(tree: Tree, revision: Revision) -> Revision | None:
    """Pin unless somebody was faster or edited the tree meanwhile: then the next sweep reads what there is."""
    before = Tree.objects.filter(pk=tree.pk, reference=tree.reference, pinned=tree.pinned_id)
    if before.update(pinned=revision, pinned_as=tree.reference, pin_problem="") != 1:
        return None
    tree.pinned, tree.pinned_as, tree.pin_problem = revision, tree.reference, ""
    log.info("reference_pinned", tree=tree.name, reference=tree.reference, sha=revision.sha)
    return revision


def _tell(tree: Tree, problem: str) -> None:
    if tree.pin_problem != problem:
        Tree.objects.filter(pk=tree.pk).update(pin_problem=problem)
        tree.pin_problem = problem
        log.warning("reference_unknown", tree=tree.name, reason=problem)


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
    return Branch.objects.filter(tree=wanted.tree, name=wanted.branch).first()


def _branch_with(tree: Tree, revision: Revision) -> Branch | None:
    standing = Branch.objects.filter(tree=tree, deleted_at=None, head__isnull=False).select_related("head")
    for branch in standing.order_by("name"):
        if branch.head and first_parents_between(revision.sha, branch.head.sha) is not None:
            return branch
    return None


# At once: a branch that was away for a week brings many, and other sweeps wait for this one.
_MOST = 20
# What is missing for so long does not come back by itself.
_LOST = timedelta(days=2)


def take_wanted() -> int:
    """Ask for a trial of each wanted revision that has none yet, oldest first; returns how many were taken.

    One that cannot stand on a timeline is not measured, and its row says why. Trees whose reference is unknown wait.
    A tree that git has trouble with does not stand in the way of others.
    """
    waiting = WantedRevision.objects.filter(taken_at=None)
    if reason := _nobody_measures():
        return waiting.update(taken_at=clock.now(), outcome=reason)
    taken = 0
    trees = Tree.objects.filter(pk__in=waiting.values("tree")).select_related("pinned").order_by("-priority", "pk")
    for tree in trees:
        rows = waiting.filter(tree=tree).select_related("revision", "tree").order_by("pk")[: _MOST - taken]
        for wanted in rows:
            try:
                reference = pinned_reference(tree, wanted.revision)
                if reference is None:
                    break
                taken += _take(wanted, reference)
            except DomainError as error:
                log.warning("head_not_placed", tree=tree.name, sha=wanted.revision.sha, reason=error.message)
                _give_up_if_lost(wanted, error)
                break
    return taken


def _nobody_measures() -> str:
    """Why no head of any tree is measured here; empty where heads are measured."""
    if settings.HEAD_BOOTS == 0:
        return "not measured: TIDEMARK_HEAD_BOOTS is 0 on this site"
    if not settings.VIRTUAL_VERDICTS and not Machine.objects.filter(virtual=False).exists():
        return "not measured: there is no physical machine"
    return ""


def _give_up_if_lost(wanted: WantedRevision, error: DomainError) -> None:
    """A commit that the mirror has not had for so long, as one that was made anew, or one that can never be asked for.

    Others wait behind it.
    """
    lost = error.permanent or mirror().resolve(wanted.revision.sha) is None
    if lost and wanted.created_at < clock.now() - _LOST:
        waiting = WantedRevision.objects.filter(pk=wanted.pk, taken_at=None)
        waiting.update(taken_at=clock.now(), outcome=f"not measured: {error.message}")


@transaction.atomic
def _take(wanted: WantedRevision, reference: Revision) -> bool:
    """False when another process has it. All in one transaction: a row that is taken has its trial."""
    row = WantedRevision.objects.select_for_update(of=("self",), skip_locked=True).filter(pk=wanted.pk, taken_at=None)
    if not row.exists():
        return False
    branch = branch_of(wanted)
    place = place_on(branch, wanted.revision) if branch else None
    outcome = ""
    if branch is None:
        outcome = "not measured: it is on the first-parent line of no watched branch"
    elif place is None:
        outcome = f"not measured: {branch.name} was forced away from its line meanwhile"
    else:
        MeasuredHead.objects.get_or_create(
            branch=branch,
            revision=wanted.revision,
            reference=reference,
            defaults={"place": place, "trial": _trial(wanted, reference)},
        )
    row.update(taken_at=clock.now(), outcome=outcome)
    return True


def _trial(wanted: WantedRevision, reference: Revision) -> Trial:
    """A fixed number of boots: the points of a timeline speak together, and none of them alone is a claim."""
    default = benchmarks_for(())
    return want_trial(
        Ask(
            key=f"head:{wanted.tree_id}:{wanted.revision_id}:{reference.pk}",
            purpose=Trial.Purpose.HEAD,
            base=reference,
            patched=wanted.revision,
            looks=(settings.HEAD_BOOTS,),
            trace=new_trace(),
            benchmarks=tuple(sorted({*default, *wanted.tree.benchmarks})) if default else (),
        )
    )
