"""A confirmed finding is bisected: one search for each microarchitecture that changed."""

import math
from collections.abc import Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction

from server.core import clock
from server.core.git import GitError
from server.core.tasks import enqueue
from server.detection.bisecting.revisions import between
from server.detection.lifecycle.checks import Check, Name, Outcome, set_checks
from server.detection.models import Bisection, BisectionState, Comparison, Finding
from server.detection.vector import SPLIT
from server.sources.mirror import record_revisions
from server.sources.models import Revision, SeriesState, Tree

log = structlog.get_logger(__name__)

CHANGED = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)
_MOVED = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, SPLIT)
_ENDS_ALONE = 2
# What is older is not begun by itself when a site switches bisection on.
_LOOK_BACK = timedelta(days=2)
BEFORE = (Finding.State.CONFIRMED, Finding.State.REPORTED)


def begin(finding: Finding, *, actor: str = "") -> bool:
    """Begin to look for the revision that made the finding's change; whether it is BISECTING now.

    With one revision only, that is the culprit at once. What cannot be bisected says so in its checks; where the mirror
    cannot be read, the sweep begins later. Nobody looks in a series that a newer version has replaced. Asking twice
    begins once. The caller holds the finding's row.
    """
    if not may_search(finding) or finding.culprit_id is not None or finding.bisections.exists():
        return False
    try:
        with transaction.atomic():
            return _begin(finding, actor)
    except GitError as error:
        log.warning("bisection_not_begun", trace=finding.trace, finding=finding.pk, reason=error.message)
        return False


def may_search(finding: Finding) -> bool:
    """Whether this site looks for the revision that made such a finding's change."""
    if settings.BISECT_HOURS <= 0 or finding.kind not in CHANGED or finding.state not in BEFORE:
        return False
    return finding.series is None or finding.series.state != SeriesState.SUPERSEDED


def begin_forgotten(most: int) -> None:
    """Begin where the mirror could not be read, or nobody asked, when the finding was confirmed."""
    waiting = Finding.objects.filter(
        state__in=BEFORE, kind__in=CHANGED, culprit=None, bisections=None, trial__isnull=False
    ).exclude(checks__contains=[{"name": str(Name.BISECTION)}])
    wanted = waiting.exclude(series__state=SeriesState.SUPERSEDED)
    recent = wanted.filter(state_since__gt=clock.now() - _LOOK_BACK).order_by("pk")
    for finding_id in recent.values_list("pk", flat=True)[:most]:
        with transaction.atomic():
            begin(Finding.objects.select_for_update(of=("self",), no_key=True).get(pk=finding_id))


def _begin(finding: Finding, actor: str) -> bool:
    found, targets = between(finding), targets_of(finding)
    why_not = found.why_not or ("" if targets else "no cell speaks for its change")
    if why_not:
        _note(finding, Outcome.NOT_CHECKED, f"not bisected: {why_not}")
        return False
    if len(found.shas) == _ENDS_ALONE:
        _take_only_one(finding, found.shas[-1])
        return False
    if not finding.advance(Finding.State.BISECTING, f"looking among {len(found.shas) - 1} revisions", actor=actor):
        return False
    for target in targets:
        create(finding, target, found.shas)
    enqueue("detection.tend", "bisections")
    return True


def create(finding: Finding, target: Comparison, shas: Sequence[str]) -> Bisection:
    """A search by this cell, on its machine. The caller holds the finding."""
    return Bisection.objects.create(
        finding=finding,
        machine=target.session.machine,
        target=target,
        state=BisectionState.ENDS,
        reason=f"{len(shas) - 1} revisions",
        trace=finding.trace,
        revisions=list(shas),
        high=len(shas) - 1,
        effect=math.log(target.ratio or 1),
    ).record_creation()


def _take_only_one(finding: Finding, sha: str) -> None:
    finding.culprit = record_revisions(tree=_tree(finding), shas=[sha])[0]
    finding.save(update_fields=["culprit"])
    _note(finding, Outcome.PASSED, f"made by {finding.culprit}: no other revision lies between")


def _note(finding: Finding, outcome: Outcome, text: str) -> None:
    set_checks(finding, [Name.BISECTION], [Check(Name.BISECTION, outcome, text)])


def _tree(finding: Finding) -> Tree:
    end: Revision | None = finding.series.head if finding.series else finding.after
    assert end is not None
    return end.tree


def targets_of(finding: Finding) -> list[Comparison]:
    """The cell that speaks for each microarchitecture that changed; each machine once."""
    verdicts = finding.verdicts.filter(verdict__in=_MOVED, comparison__ratio__gt=0).select_related(
        "comparison__session__machine"
    )
    by_machine = {row.comparison.session.machine_id: row.comparison for row in verdicts if row.comparison}
    return list(by_machine.values())
