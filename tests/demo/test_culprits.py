"""The demo's check of who was found to have made the change, and what is printed about the search."""

import pytest

from demo.checks import culprit_checks
from demo.postings import OUTCOMES
from demo.watch import search_lines
from server.detection.models import Bisection, BisectionStep, Finding
from server.sources.models import Patch, Revision, Series
from tests.builders import (
    build_comparison,
    build_finding,
    build_machine,
    build_revision,
    build_series,
    build_session,
)

pytestmark = pytest.mark.django_db
OUTCOME = OUTCOMES["slow"]


def searched_series() -> Series:
    """Two patches; the second one was found on both machines."""
    base = build_revision()
    first = build_revision(base.tree, base)
    head = build_revision(base.tree, first, subject="x86/lib: Clear pages twice")
    series = build_series(base=base, head=head)
    for patch, revision in zip(Patch.objects.filter(series=series).order_by("index"), (first, head), strict=True):
        patch.revision = revision
        patch.save()
    cells = [
        build_comparison(build_session(series, build_machine(f"vm-{uarch}", uarch), state="done"), "regressed")
        for uarch in ("haswell", "zen3")
    ]
    finding = build_finding(series, culprit=head)
    for cell in cells:
        search = _search(finding, cell.pk, cell.session.machine_id, [base, first, head])
        BisectionStep.objects.create(bisection=search, number=1, kind="middle", index=1, answer="good", ratio=1.0)
    return series


def _search(finding: Finding, target: int, machine: int, revisions: list[Revision]) -> Bisection:
    return Bisection.objects.create(
        finding=finding,
        machine_id=machine,
        target_id=target,
        revisions=[revision.sha for revision in revisions],
        low=1,
        high=2,
        effect=0.5,
        state=Bisection.State.FOUND,
        culprit=revisions[-1],
    )


def faults(series: Series) -> str:
    (one,) = culprit_checks(series, OUTCOME)
    return "" if one.ok else one.detail


def test_named_patch_is_right_when_every_machine_that_moved_was_searched() -> None:
    assert faults(searched_series()) == ""


def test_another_patch_or_none_is_wrong() -> None:
    series = searched_series()
    Finding.objects.update(culprit=series.patches.get(index=1).revision)
    assert "instead of" in faults(series)
    Finding.objects.update(culprit=None)
    assert faults(series).startswith("none instead of")


def test_search_that_gave_up_and_machine_without_a_search_are_told() -> None:
    series = searched_series()
    Bisection.objects.filter(machine__name="vm-zen3").update(state="gave-up", reason="the budget is spent")
    assert "on vm-zen3 is gave-up: the budget is spent" in faults(series)
    BisectionStep.objects.all().delete()
    Bisection.objects.filter(machine__name="vm-zen3").delete()
    assert "not searched on zen3" in faults(series)


def test_series_in_which_nothing_moves_has_no_culprit_to_check() -> None:
    assert culprit_checks(searched_series(), OUTCOMES["null"]) == []


def test_each_step_of_each_search_is_printed_with_what_all_of_it_cost() -> None:
    told = "\n".join(search_lines(searched_series()))
    assert "culprit: x86/lib: Clear pages twice" in told
    assert told.count("middle patch 1: good 1.00x") == 2
    assert "of machine time" in told


def test_series_without_a_finding_tells_of_no_search() -> None:
    assert search_lines(build_series()) == []
