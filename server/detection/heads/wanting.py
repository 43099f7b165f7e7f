"""Wanted revisions become trials: each head against the pinned reference, in the same sessions."""

from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.core.states import new_trace
from server.detection.heads.pinning import pinned_reference
from server.detection.heads.places import branch_of, place_on
from server.detection.models import MeasuredHead
from server.lab.models import Machine, Trial
from server.lab.trials.asking import Ask, want_trial
from server.sources.measuring import benchmarks_for
from server.sources.mirror import mirror
from server.sources.models import Revision, Tree, WantedRevision

log = structlog.get_logger(__name__)

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
