"""A change in a branch is measured again because a person asked, with fresh boots of both its ends."""

import pytest

from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.findings.checks import Check, CheckOutcome, Name, checks_named, set_checks
from server.detection.findings.result import remake
from server.detection.lifecycle.retest import answer_retest, retest_finding
from server.detection.models import Comparison, Finding
from server.detection.on_trial_over import answer_trial
from server.lab.models import Machine, Session, Trial
from tests.builders import build_machine, build_trial_session
from tests.detection.lifecycle.findings import DOWN, SAME, UNSURE, UP, Verdicts, candidate, judged, write_down
from tests.detection.lifecycle.mending import World
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("verdict", "outcome"), [(UP, "passed"), (SAME, "failed")])
def test_what_fresh_boots_of_both_ends_say_is_a_check(world: World, verdict: str, outcome: str) -> None:
    trial, new = retest_finding(world.finding, actor="ada", reason="a kernel argument was wrong")
    assert (new, trial.purpose, trial.series) == (True, Trial.Purpose.RETEST, None)
    assert (trial.base, trial.patched) == (world.finding.before, world.finding.after)
    assert list(trial.machines.all()) == [world.machine]
    assert [check["outcome"] for check in checks_named(Finding.objects.get(), Name.RETEST)] == ["pending"]
    assert retest_finding(world.finding, actor="bob", reason="so") == (trial, False)
    write_down(trial, {world.machine: {"fork": verdict, "mmap": SAME}})
    trial.advance(Trial.State.DONE)
    assert answer_trial(trial_id=trial.pk)
    world.finding.refresh_from_db()
    assert [check["outcome"] for check in checks_named(world.finding, Name.RETEST)] == [outcome]
    assert (world.finding.state == Finding.State.INVALID) == (outcome == "failed")


def test_only_what_stands_is_measured_again_and_where_a_machine_is(world: World) -> None:
    retest_finding(world.finding, actor="ada", reason="so")
    with pytest.raises(DomainError, match="being measured again already, on m1") as other:
        retest_finding(world.finding, actor="ada", reason="so", machines=[build_machine("m2")])
    assert other.value.code == "under-way"
    Trial.objects.filter(purpose=Trial.Purpose.RETEST).update(state=Trial.State.DONE)
    type(world.machine).objects.update(enabled=False)
    with pytest.raises(DomainError, match="no machine that confirmed"):
        retest_finding(world.finding, actor="ada", reason="so")
    world.finding.advance(Finding.State.INVALID, Because.NOISE("noise: so"))
    with pytest.raises(DomainError, match="it claims nothing"):
        retest_finding(world.finding, actor="ada", reason="so")


def measured_again(finding: Finding, verdicts: Verdicts, *silent: Machine) -> str:
    """The check once all its machines were asked; those that are silent gave nothing."""
    trial = judged(finding.series, verdicts, purpose=Trial.Purpose.RETEST)
    for machine in silent:
        build_trial_session(trial, machine, state=Session.State.FAILED)
    trial.machines.clear()
    answer_retest(trial)
    finding.refresh_from_db()
    [check] = checks_named(finding, Name.RETEST)
    return str(check["outcome"])


@pytest.mark.parametrize(
    ("told", "outcome"),
    [
        ({"fork": UP, "mmap": SAME}, "passed"),
        ({"fork": UP}, "passed"),
        ({"mmap": SAME}, "not-checked"),
        ({"fork": UP, "mmap": UNSURE}, "passed"),
        ({"fork": UP, "exec": DOWN}, "passed"),
        ({"fork": UNSURE}, "not-checked"),
        ({"exec": UP}, "not-checked"),
        ({"fork": SAME}, "failed"),
        ({"fork": DOWN}, "failed"),
        ({"mmap": UP}, "failed"),
    ],
)
def test_of_a_split_whose_other_machine_gave_nothing_that_part_is_judged(told: dict[str, str], outcome: str) -> None:
    lost, won = physical("m1", "zen3"), physical("m2", "zen5")
    finding = candidate({lost: {"fork": UP, "mmap": SAME}, won: {"fork": DOWN}})
    assert finding.kind == Finding.Kind.SPLIT
    assert measured_again(finding, {lost: told}, won) == outcome
    assert finding.verdicts.get(uarch=won.uarch).verdict == DOWN
    assert finding.kind == (Finding.Kind.IMPROVED if "fork" in told and outcome == "failed" else Finding.Kind.SPLIT)


def test_sides_that_changed_places_are_not_the_same_though_the_kind_is() -> None:
    one, other = physical("m1", "zen3"), physical("m2", "zen5")
    finding = candidate({one: {"fork": UP}, other: {"fork": SAME}})
    assert measured_again(finding, {one: {"fork": SAME}, other: {"fork": UP}}) == "failed"


def test_another_machine_of_the_microarchitecture_measures_it_again() -> None:
    finding = candidate({physical("m1", "zen3"): {"fork": UP}})
    assert measured_again(finding, {physical("m2", "zen3"): {"fork": UP}}) == "passed"


def test_one_cell_of_many_that_is_disproved_is_told_as_such_beside_what_stands() -> None:
    machine = physical("m1", "zen3")
    finding = candidate({machine: {"fork": UP, "mmap": UP}})
    assert measured_again(finding, {machine: {"fork": UP, "mmap": SAME}}) == "failed"
    assert finding.kind == Finding.Kind.REGRESSED


def test_change_that_the_finding_no_longer_claims_is_not_asked_about() -> None:
    machine = physical("m1", "zen3")
    finding = candidate({machine: {"fork": UP, "mmap": UP}})
    row = Comparison.objects.get(session__trial=finding.trial, case__name="mmap")
    set_checks(finding, [Name.LAYOUT], [Check(Name.LAYOUT, CheckOutcome.FAILED, "gone", "m1", "zen3", (row.pk,))])
    remake(finding)
    assert measured_again(finding, {machine: {"fork": UP, "mmap": SAME}}) == "passed"
