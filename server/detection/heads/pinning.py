"""The reference kernel of a tree: what all of its heads are measured against."""

import re

import structlog

from server.sources.mirror import mirror, record_revisions, tag_ref
from server.sources.models import Revision, Tree
from server.sources.trees.refnames import is_usable

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
