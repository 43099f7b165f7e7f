"""Checks before a claim: what they ask for, what they take away."""

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.models import Transition
from server.detection.findings.result import remade
from server.detection.lifecycle.confirmation import begin_checks
from server.detection.models import Finding
from server.detection.on_trial_over import answer_check, answer_trial
from server.detection.sweep import tend_life
from server.lab.hosts.state import change_health
from server.lab.models import LATE, Boot, Machine, Trial
from tests.builders import EPOCH, because
from tests.detection.lifecycle.findings import (
    DOWN,
    SAME,
    UNSURE,
    UP,
    Verdicts,
    candidate,
    give_layout,
    quarantine,
    write_down,
)
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_bisection(settings: Settings) -> None:
    settings.BISECT_HOURS = 0


def checks(finding: Finding) -> dict[tuple[str, str], str]:
    finding.refresh_from_db()
    return {(row["name"], row["machine"]): row["outcome"] for row in finding.checks}


def layout_trial(finding: Finding) -> Trial:
    return Trial.objects.get(key=f"finding:{finding.pk}:layout")


def measure_layout(finding: Finding, measured: Verdicts) -> None:
    """The layout trial runs to its end and its answer is taken up."""
    trial = layout_trial(finding)
    write_down(trial, measured)
    trial.advance(Trial.State.DONE)
    assert answer_trial(trial_id=trial.pk)


def test_a_finding_that_claims_nothing_is_confirmed_at_once() -> None:
    finding = candidate({physical("m1", "zen3"): {"fault-4k": SAME}})
    begin_checks(finding)
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
    assert finding.checks == []


def test_without_another_layout_a_claim_is_confirmed_and_says_so() -> None:
    finding = candidate({physical("m1", "zen3"): {"fault-4k": UP}})
    begin_checks(finding)
    told = checks(finding)
    assert finding.state == Finding.State.CONFIRMED
    assert told["machine", "m1"] == "passed"
    assert told["layout", "m1"] == "not-checked"
    assert "no variant with another code layout" in finding.checks[-1]["text"]


def test_a_claim_waits_for_its_layout_to_be_checked() -> None:
    machine, other = physical("m1", "zen3"), physical("m2", "zen5")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP, "fork": SAME}, other: {"fault-4k": SAME, "fork": SAME}})
    begin_checks(finding)
    begin_checks(finding)
    assert checks(finding) == {("layout", ""): "pending"}
    assert finding.state == Finding.State.CANDIDATE
    trial = layout_trial(finding)
    assert (trial.purpose, trial.layout, trial.benchmarks) == ("layout", True, ["mm-basic/fault-4k"])
    assert [row.name for row in trial.machines.all()] == ["m1"]


def test_an_effect_that_shows_with_another_layout_is_confirmed() -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP}})
    begin_checks(finding)
    measure_layout(finding, {machine: {"fault-4k": UP}})
    assert checks(finding)["layout", "m1"] == "passed"
    assert finding.state == Finding.State.CONFIRMED


@pytest.mark.parametrize("again", [SAME, DOWN])
def test_an_effect_that_vanishes_everywhere_is_layout_and_withdrawn(again: str) -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP}})
    begin_checks(finding)
    measure_layout(finding, {machine: {"fault-4k": again}})
    assert checks(finding)["layout", "m1"] == "failed"
    assert finding.state == Finding.State.INVALID
    assert finding.reason.startswith("layout: time of fault-4k does not show on m1")


def test_an_effect_that_vanishes_on_one_uarch_stays_on_the_other() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen5")
    give_layout(one)
    finding = candidate({one: {"fault-4k": UP}, two: {"fault-4k": DOWN}})
    assert finding.kind == Finding.Kind.SPLIT
    begin_checks(finding)
    measure_layout(finding, {one: {"fault-4k": SAME}, two: {"fault-4k": DOWN}})
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.IMPROVED)
    gone = finding.verdicts.get(uarch__name="zen3")
    assert gone.verdict == "inconclusive"
    assert "only how code is placed" in gone.reason
    assert finding.headline.startswith("Improved on zen5")


def test_cells_that_stand_keep_the_claim_of_their_uarch() -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP, "fork": UP}})
    begin_checks(finding)
    measure_layout(finding, {machine: {"fault-4k": UP, "fork": SAME}})
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.REGRESSED)
    assert [row["outcome"] for row in finding.checks if row["name"] == "layout"] == ["failed", "passed"]


def test_what_another_layout_cannot_tell_takes_nothing_away() -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP}})
    begin_checks(finding)
    measure_layout(finding, {machine: {"fault-4k": UNSURE}})
    assert checks(finding)["layout", "m1"] == "not-checked"
    assert finding.state == Finding.State.CONFIRMED


def test_a_layout_trial_that_cannot_be_measured_takes_nothing_away() -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP}})
    begin_checks(finding)
    trial = layout_trial(finding)
    trial.advance(Trial.State.FAILED, because("its kernel does not build"))
    answer_check(trial)
    answer_check(trial)
    assert checks(finding)["layout", "m1"] == "not-checked"
    assert "its kernel does not build" in finding.checks[-1]["text"]
    assert finding.state == Finding.State.CONFIRMED


def test_a_quarantined_machine_speaks_for_nothing() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen5")
    finding = candidate({one: {"fault-4k": UP}, two: {"fault-4k": DOWN}})
    quarantine(one, "its fan stands still")
    begin_checks(finding)
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.IMPROVED)
    assert "its fan stands still" in finding.verdicts.get(uarch__name="zen3").reason


def test_a_quarantined_machine_does_not_say_that_nothing_changed() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen5")
    finding = candidate({one: {"fault-4k": SAME}, two: {"fault-4k": SAME}})
    quarantine(one, "its fan stands still")
    begin_checks(finding)
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.INCONCLUSIVE)
    assert {row.uarch.name: row.verdict for row in finding.verdicts.all()} == {"zen3": UNSURE, "zen5": SAME}
    again = remade(finding)
    assert again is not None
    assert again.kind == finding.kind


def test_a_quarantined_machine_hides_no_change_that_another_saw() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen3")
    finding = candidate({one: {"fault-4k": SAME}, two: {"fault-4k": UP}})
    assert finding.kind == Finding.Kind.INCONCLUSIVE
    quarantine(one, "its fan stands still")
    begin_checks(finding)
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.REGRESSED)
    assert checks(finding)["machine", "m1"] == "failed"


@pytest.mark.parametrize(("mended", "kind"), [(False, Finding.Kind.REGRESSED), (True, Finding.Kind.INCONCLUSIVE)])
def test_while_the_layout_is_measured_a_finding_says_what_its_checks_say(*, mended: bool, kind: str) -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen3")
    give_layout(two)
    finding = candidate({one: {"fault-4k": SAME}, two: {"fault-4k": UP}})
    quarantine(one, "its fan stands still")
    begin_checks(finding)
    told = remade(finding)
    assert told is not None
    assert (finding.state, finding.kind, told.kind) == (Finding.State.CANDIDATE, *[Finding.Kind.REGRESSED] * 2)
    if mended:
        Machine.objects.update(health=Machine.Health.GOOD)
    measure_layout(finding, {two: {"fault-4k": UP}})
    finding.refresh_from_db()
    again = remade(finding)
    assert again is not None
    assert (finding.state, finding.kind, again.kind) == (Finding.State.CONFIRMED, kind, kind)


def test_what_came_late_was_no_part_of_what_its_machine_measured() -> None:
    machine = physical("m1", "zen3")
    finding = candidate({machine: {"fork": UP}})
    change_health(machine, Machine.Health.QUARANTINED, "was not reached")
    change_health(machine, Machine.Health.GOOD, "is back")
    Boot.objects.update(started_at=EPOCH, ended_at=EPOCH)
    Boot.objects.filter(position=0).update(state=Boot.State.FAILED, outcome=LATE, ended_at=clock.now())
    begin_checks(finding)
    assert checks(finding)["machine", "m1"] == "passed"


def test_a_machine_that_was_quarantined_and_released_later_speaks_on() -> None:
    machine = physical("m1", "zen3")
    finding = candidate({machine: {"fork": UP}})
    change_health(machine, Machine.Health.QUARANTINED, "was not reached")
    change_health(machine, Machine.Health.GOOD, "is back")
    begin_checks(finding)
    assert checks(finding)["machine", "m1"] == "passed"
    during = candidate({machine: {"fork": UP}})
    Boot.objects.filter(session__machine=machine).update(started_at=EPOCH, ended_at=clock.now())
    begin_checks(during)
    assert during.state == Finding.State.INVALID
    assert during.reason == "machine: m1 was quarantined while it measured this: was not reached"


def test_a_claim_of_bad_machines_alone_is_withdrawn() -> None:
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fault-4k": UP}})
    quarantine(machine, "its fan stands still")
    begin_checks(finding)
    assert not Trial.objects.filter(purpose="layout").exists()
    finding.refresh_from_db()
    assert (finding.state, finding.reason) == (
        Finding.State.INVALID,
        "machine: m1 is quarantined: its fan stands still",
    )


def test_another_machine_of_the_uarch_speaks_on() -> None:
    one, two = physical("m1", "zen3"), physical("m2", "zen3")
    finding = candidate({one: {"fault-4k": UP}, two: {"fault-4k": UP}})
    quarantine(one, "its fan stands still")
    begin_checks(finding)
    finding.refresh_from_db()
    assert (finding.state, finding.kind) == (Finding.State.CONFIRMED, Finding.Kind.REGRESSED)


def test_hardware_that_changed_since_takes_the_claim_away() -> None:
    machine = physical("m1", "zen3")
    finding = candidate({machine: {"fault-4k": UP}})
    Transition.objects.create(
        trace="t",
        subject="machine",
        subject_id=machine.pk,
        before="1-a",
        after="1-b",
        reason="firmware: microcode 1 -> 2",
    )
    begin_checks(finding)
    finding.refresh_from_db()
    assert finding.state == Finding.State.INVALID
    assert "another machine since it measured this: firmware: microcode 1 -> 2" in finding.reason


def test_the_sweep_goes_on_where_a_lost_message_stopped() -> None:
    finding = candidate({physical("m1", "zen3"): {"fault-4k": UP}})
    tend_life()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CANDIDATE
    Trial.objects.filter(finding=finding).update(answered_at=finding.created_at)
    tend_life()
    finding.refresh_from_db()
    assert finding.state == Finding.State.CONFIRMED
