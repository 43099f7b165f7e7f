"""What is verified before a search, and how bisections end that find nothing."""

from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.detection.bisection.conclusion import cancel_by_hand
from server.detection.bisection.rounds import begin
from server.detection.models import Bisection, BisectionStep, Comparison, Finding
from server.detection.sweep import tend_bisections
from server.lab.models import Trial
from server.sources.models import Series
from tests.builders import because
from tests.detection.bisecting.world import judged, make_world, zen3, zen5

pytestmark = pytest.mark.django_db

Kind, Answer = BisectionStep.Kind, BisectionStep.Answer


def age_target(finding: Finding) -> None:
    row = Comparison.objects.get(pk=finding.bisections.get().target_id)
    Comparison.objects.filter(pk=row.pk).update(computed_at=row.computed_at - timedelta(days=8))


def test_old_boots_verify_no_ends_and_a_change_that_does_not_show_again_was_noise(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = judged(world, machine)
    age_target(finding)
    world.costs.clear()
    world.run()
    finding.refresh_from_db()
    assert finding.state == Finding.State.INVALID
    assert "measured again, its change does not show" in finding.reason
    assert finding.bisections.get().state == Bisection.State.GAVE_UP
    check = next(row for row in finding.checks if row["name"] == "bisection")
    assert check["outcome"] == "failed"


def test_a_change_that_shows_again_on_one_machine_only_is_claimed_there_only(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    one, other = zen3(), zen5()
    world.costs = {one.name: {"p2": 1.7}, other.name: {"p2": 1.2}}
    finding = judged(world, one, other)
    old = clock.now() - timedelta(days=8)
    Comparison.objects.filter(session__machine=other).update(computed_at=old)
    del world.costs[other.name]
    world.run()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is not None
    verdicts = dict(finding.verdicts.values_list("uarch__name", "verdict"))
    assert verdicts == {"zen3": "regressed", "zen5": "inconclusive"}
    assert "does not show" in finding.verdicts.get(uarch__name="zen5").reason


def test_ends_that_are_measured_again_tell_the_size_of_the_change(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = judged(world, machine)
    age_target(finding)
    world.costs[machine.name] = {"p2": 1.4}
    world.run()
    bisection = finding.bisections.get()
    ends = bisection.steps.get(kind=Kind.ENDS)
    assert ends.trial is not None
    assert (ends.trial.purpose, ends.trial.min_effect) == (Trial.Purpose.BISECT, None)
    assert bisection.effect == pytest.approx(0.336, abs=0.01)
    assert bisection.state == Bisection.State.FOUND


def test_one_revision_is_the_culprit_without_a_search(tmp_path: Path) -> None:
    world = make_world(tmp_path, 1)
    machine = zen3()
    world.costs[machine.name] = {"p1": 1.7}
    finding = judged(world, machine)
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[1]
    assert not finding.bisections.exists()
    # Asking again begins nothing.
    assert begin(finding) is False


def test_a_spent_budget_ends_the_search_with_what_is_known(tmp_path: Path, settings: Settings) -> None:
    world = make_world(tmp_path, 6)
    machine = zen3()
    world.costs[machine.name] = {"p5": 1.7}
    finding = judged(world, machine)
    # One session of eight boots, a minute each.
    settings.BISECT_HOURS = 8 / 60
    world.run()
    finding.refresh_from_db()
    bisection = finding.bisections.get()
    assert bisection.state == Bisection.State.GAVE_UP
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is None
    assert (
        "machine time are spent; it is one of the 3 from patch 4 of 6: mm: Change 4 to patch 6 of 6" in finding.reason
    )


def test_a_machine_that_is_away_for_days_does_not_keep_a_finding_from_people(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = judged(world, machine)
    tend_bisections()
    BisectionStep.objects.filter(answer="").update(created_at=clock.now() - timedelta(days=3, minutes=1))
    tend_bisections()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    assert finding.reason.startswith("zen3-a did not measure a step in 3 days")
    assert Trial.objects.get(purpose=Trial.Purpose.BISECT).state == Trial.State.CANCELED


@pytest.mark.parametrize("how", ["accepted", "by hand", "superseded"])
def test_what_nobody_asks_any_more_is_canceled_with_its_trials(tmp_path: Path, how: str) -> None:
    world = make_world(tmp_path, 3)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = judged(world, machine)
    tend_bisections()
    step = finding.bisections.get().steps.get(answer="")
    if how == "accepted":
        finding.advance(Finding.State.ACCEPTED, because("known"), actor="ada")
    elif how == "by hand":
        cancel_by_hand(finding, "ada", "it is known")
    else:
        assert finding.series is not None
        Series.objects.filter(pk=finding.series.pk).update(state=Series.State.SUPERSEDED)
    tend_bisections()
    assert finding.bisections.get().state == Bisection.State.CANCELED
    assert step.trial is not None
    step.trial.refresh_from_db()
    assert step.trial.state == Trial.State.CANCELED
    finding.refresh_from_db()
    assert finding.state == (Finding.State.ACCEPTED if how == "accepted" else Finding.State.CONFIRMED)
    tend_bisections()
    assert finding.bisections.get().steps.filter(answer="").count() == 0


def test_a_site_that_does_not_bisect_leaves_findings_confirmed(tmp_path: Path, settings: Settings) -> None:
    settings.BISECT_HOURS = 0
    world = make_world(tmp_path, 3)
    machine = zen3()
    world.costs[machine.name] = {"p2": 1.7}
    finding = judged(world, machine)
    tend_bisections()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    assert not finding.bisections.exists()
