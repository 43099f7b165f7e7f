from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from server.detection.models import Comparison, Finding, FindingVerdict
from server.detection.models.finding import FIGURES
from server.detection.trials.look import look_at_trial
from server.results.models import Measurement
from tests.builders import build_series, forget
from tests.detection.measured import SLOWER, STEADY, judge_series, measured_session, measured_trial, physical

pytestmark = pytest.mark.django_db


def recompute(*arguments: str) -> str:
    out = StringIO()
    call_command("recompute", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def series_id() -> int:
    """A series of before there were trials."""
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY, "fault-4k": SLOWER}, spread=0.01)
    judge_series(series_id=series.pk)
    return series.pk


@pytest.fixture
def finding() -> Finding:
    """Of a series that was measured by a trial."""
    cases = {"copy": STEADY, "fault-4k": SLOWER}
    trial = measured_trial(
        build_series(), {physical("h1", "haswell"): cases, physical("z1", "zen1"): cases}, spread=0.001
    )
    found = judge_series(series_id=trial.series_id or 0)
    assert found is not None
    return found


def test_stored_comparisons_are_what_their_measurements_give(series_id: int) -> None:
    assert recompute("--check") == "1 findings recomputed, 0 differences\n"


def test_a_finding_of_a_trial_is_what_its_measurements_give(finding: Finding) -> None:
    assert recompute("--check") == "1 findings recomputed, 0 differences\n"


def test_a_series_that_is_not_there_is_no_success() -> None:
    with pytest.raises(CommandError, match="there is no series 999999"):
        recompute("--check", "--series", "999999")


@pytest.mark.usefixtures("series_id")
def test_changed_figure_is_named_and_nothing_is_written() -> None:
    Comparison.objects.filter(case__name="copy").update(ratio=1.5)
    assert ", h1 time of mm-basic/copy (all): ratio is 1.5, now 1\n" in recompute()
    assert Comparison.objects.get(case__name="copy").ratio == 1.5


def test_each_figure_of_a_comparison_is_compared(finding: Finding) -> None:
    row = Comparison.objects.get(session__machine__name="h1", case__name="copy")
    others = {"verdict": "improved", "reason": "rain", "flags": ["rain"]}
    wrong = {name: others.get(name) or (getattr(row, name) or 0) + 1 for name in FIGURES}
    Comparison.objects.filter(pk=row.pk).update(**wrong)
    said = recompute("--series", str(finding.series_id))
    assert [name for name in FIGURES if f"h1 time of mm-basic/copy (all): {name} is " not in said] == []


def test_check_fails_on_a_difference(series_id: int) -> None:
    Comparison.objects.filter(case__name="copy").update(verdict="improved")
    with pytest.raises(CommandError, match="differ"):
        recompute("--check")


def test_missing_and_surplus_comparisons_are_differences(series_id: int) -> None:
    forget(Measurement.objects.filter(case__name="copy"))
    assert "h1 time of mm-basic/copy (all): comparison is there, now missing" in recompute()


def test_one_series_can_be_asked_for(series_id: int) -> None:
    assert recompute("--series", str(build_series().pk)).startswith("0 findings")


def test_whatever_a_finding_says_must_follow_from_its_measurements(finding: Finding) -> None:
    wrong = {
        "kind": "improved",
        "headline": "All is well.",
        "gaps": ["lost"],
        "explanations": ["moon"],
        "counters": [1],
    }
    Finding.objects.filter(pk=finding.pk).update(**wrong)
    said = recompute()
    assert said.endswith("1 findings recomputed, 5 differences\n")
    for name, value in wrong.items():
        assert f"finding {finding.pk}, result: {name} is {value!r}, now " in said


def test_a_changed_component_of_the_vector_is_a_difference(finding: Finding) -> None:
    FindingVerdict.objects.filter(finding=finding, uarch__name="zen1").update(verdict="unchanged")
    assert f"finding {finding.pk}, zen1: verdict is 'unchanged', now 'regressed'" in recompute()


def test_trials_that_made_no_finding_are_recomputed_too() -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, purpose="bisect", key="bisection:1:2")
    look_at_trial(trial_id=trial.pk)
    assert recompute("--check") == "0 findings and 1 other trials recomputed, 0 differences\n"
    Comparison.objects.update(verdict="regressed")
    assert "trial bisection:1:2, h1 time of mm-basic/copy (all): verdict is 'regressed', now 'unchanged'" in recompute()


def test_a_trial_that_was_cut_short_is_recomputed_as_it_was_judged() -> None:
    trial = measured_trial(
        None,
        {physical("h1", "haswell"): {"copy": (2168.0, 2300.0)}},
        spread=0.017,
        looks=(4, 6, 8),
        purpose="bisect",
        budget_seconds=1.0,
    )
    look_at_trial(trial_id=trial.pk)
    assert trial.sessions.get().cut_short
    assert recompute("--check").endswith(" 0 differences\n")
