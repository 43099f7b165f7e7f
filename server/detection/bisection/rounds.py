"""Rounds of a bisection: one search for each microarchitecture of a confirmed finding, and another where the first
had no answer.
"""

import math
from collections.abc import Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery

from server.core import clock
from server.core.models import Transition
from server.core.programs.git import GitError
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.detection.bisection.knowledge import between, lock
from server.detection.findings.checks import Check, CheckOutcome, Name, set_checks
from server.detection.findings.vector import SPLIT
from server.detection.models import Bisection, BisectionState, Comparison, Finding
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
        _note(finding, CheckOutcome.NOT_CHECKED, f"not bisected: {why_not}")
        return False
    if len(found.shas) == _ENDS_ALONE:
        _take_only_one(finding, found.shas[-1])
        return False
    told = Because.SEARCHED(f"looking among {len(found.shas) - 1} revisions")
    if not finding.advance(Finding.State.BISECTING, told, actor=actor):
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
        **Because.SEARCHED(f"{len(shas) - 1} revisions").columns(),
        trace=finding.trace,
        revisions=list(shas),
        high=len(shas) - 1,
        effect=math.log(target.ratio or 1),
    ).record_creation()


def _take_only_one(finding: Finding, sha: str) -> None:
    finding.culprit = record_revisions(tree=_tree(finding), shas=[sha])[0]
    finding.save(update_fields=["culprit"])
    _note(finding, CheckOutcome.PASSED, f"made by {finding.culprit}: no other revision lies between")


def _note(finding: Finding, outcome: CheckOutcome, text: str) -> None:
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


_WANTED_AGAIN = Because.SEARCHED_AGAIN("its revision is wanted again")
_UNANSWERED = (BisectionState.GAVE_UP, BisectionState.CANCELED)


def hold(finding_id: int) -> tuple[list[Bisection], Finding]:
    """The bisections of a finding and then itself, held to the end of the transaction.

    In this order, since a bisection that ends holds itself when it takes the finding.
    """
    ids = Bisection.objects.filter(finding=finding_id).order_by("pk").values_list("pk", flat=True)
    bisections = [lock(pk) for pk in ids]
    rows = Finding.objects.select_for_update(of=("self",), no_key=True).select_related("series")
    return bisections, rows.get(pk=finding_id)


def unanswered(bisections: Sequence[Bisection]) -> list[Bisection]:
    """Those that gave up or were canceled, on microarchitectures for which no other one found anything."""
    found = {row.machine.uarch_id for row in bisections if row.state == BisectionState.FOUND}
    return [row for row in bisections if row.state in _UNANSWERED and row.machine.uarch_id not in found]


def search_again(
    finding: Finding, bisections: Sequence[Bisection], ended: Sequence[Bisection], *, reason: Reason, actor: str = ""
) -> list[Bisection]:
    """Another round of those that `ended`, from end to end with fresh tries and budget; the finding is BISECTING.

    Where another machine speaks for a microarchitecture by now, that one searches. Returns those that search again;
    none, and nothing is changed, where no cell speaks for a change any more. The caller holds all of them.
    """
    targets = {target.session.machine.uarch_id: target for target in targets_of(finding)}
    by_machine = {row.machine_id: row for row in bisections}
    wanted = [targets[uarch] for uarch in dict.fromkeys(row.machine.uarch_id for row in ended) if uarch in targets]
    wanted = [one for one in wanted if by_machine.get(one.session.machine_id) in (None, *ended)]
    if not wanted or not finding.advance(Finding.State.BISECTING, reason, actor=actor):
        return []
    begun = []
    for target in wanted:
        row = by_machine.get(target.session.machine_id)
        if row is None:
            begun.append(create(finding, target, bisections[0].revisions))
        elif _next_round(row, target, reason, actor):
            begun.append(row)
    enqueue("detection.tend", "bisections")
    return begun


def _next_round(bisection: Bisection, target: Comparison, reason: Reason, actor: str) -> bool:
    return bisection.advance(
        BisectionState.ENDS,
        reason,
        actor=actor,
        round=bisection.round + 1,
        low=0,
        high=len(bisection.revisions) - 1,
        culprit=None,
        target=target,
        effect=math.log(target.ratio or 1),
    )


def search_on(most: int) -> None:
    """For the sweep: searches that were canceled since nobody asked any more, where somebody does again.

    Such are those of findings whose acceptance has expired or was withdrawn, or that were mended and are no longer.
    What a person canceled is left to persons.
    """
    if settings.BISECT_HOURS <= 0:
        return
    rows = Bisection.objects.filter(finding__state__in=BEFORE, finding__kind__in=CHANGED)
    wanted = rows.exclude(finding__series__state=SeriesState.SUPERSEDED)
    ids = wanted.filter(Q(pk__in=_stopped()) | ~Q(state__in=Bisection.FINAL)).values_list("finding_id", flat=True)
    for finding_id in ids.order_by("finding_id").distinct()[:most]:
        with transaction.atomic():
            _search_on(*hold(finding_id))


def _search_on(bisections: Sequence[Bisection], finding: Finding) -> None:
    if not may_search(finding):
        return
    stopped = set(_stopped().filter(finding=finding).values_list("pk", flat=True))
    ended = [row for row in bisections if row.pk in stopped]
    wanted = [row for row in unanswered(bisections) if row in ended]
    begun = search_again(finding, bisections, wanted, reason=_WANTED_AGAIN)
    if finding.state in BEFORE and any(row.state not in Bisection.FINAL for row in bisections):
        # Taken back before the sweep had canceled anything: what is under way goes on.
        finding.advance(Finding.State.BISECTING, _WANTED_AGAIN)
    for row in ended:
        if row not in begun:
            row.advance(BisectionState.GAVE_UP, Because.NOTHING_LEFT(), culprit=None)


def _stopped() -> QuerySet[Bisection]:
    """Canceled by the service, not by a person."""
    lines = Transition.objects.filter(subject="bisection", subject_id=OuterRef("pk")).order_by("-id")
    canceled = Bisection.objects.filter(state=BisectionState.CANCELED)
    return canceled.annotate(canceled_by=Subquery(lines.values("actor")[:1])).filter(canceled_by="")
