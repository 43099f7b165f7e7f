"""Claims that are taken back, or replaced by those of a newer version."""

import pytest
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.detection.bisection.conclusion import ask_to_bisect
from server.detection.bisection.rounds import begin_forgotten
from server.detection.branches.release import Why, invalidate
from server.detection.findings.versions import compare_versions
from server.detection.lifecycle.confirmation import begin_checks
from server.detection.models import Finding
from server.detection.sweep import tend_life
from server.lab.models import Machine, Trial
from server.sources.models import Series
from tests.builders import because, build_series
from tests.detection.lifecycle.findings import DOWN, SAME, UNSURE, UP, candidate, give_layout
from tests.detection.measured import physical

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_bisection(settings: Settings) -> None:
    settings.BISECT_HOURS = 0


@pytest.fixture
def machine() -> Machine:
    return physical("m1", "zen3")


def versions() -> tuple[Series, Series]:
    """Version 1, replaced by version 2."""
    older, newer = build_series(), build_series(version=2)
    replace(older, newer)
    return older, newer


def replace(older: Series, newer: Series) -> None:
    older.advance(Series.State.SUPERSEDED, because(f"version {newer.version} arrived"), superseded_by=newer)


def state_of(finding: Finding) -> str:
    finding.refresh_from_db()
    return finding.state


def test_a_person_withdraws_a_finding_with_a_reason(machine: Machine) -> None:
    finding = candidate({machine: {"fork": UP}})
    assert invalidate(finding, actor="ada", why=Why.NOISE, reason=" another run shows nothing ")
    assert not invalidate(finding, actor="ada", why=Why.NOISE, reason="again")
    assert (state_of(finding), finding.reason) == (Finding.State.INVALID, "noise: another run shows nothing")


def test_a_withdrawn_claim_is_measured_no_further(machine: Machine) -> None:
    give_layout(machine)
    finding = candidate({machine: {"fork": UP}})
    begin_checks(finding)
    invalidate(finding, actor="ada", why=Why.MACHINE, reason="it was on fire")
    assert Trial.objects.get(purpose="layout").state == Trial.State.CANCELED


def test_it_is_not_withdrawn_without_a_reason_or_from_an_end(machine: Machine) -> None:
    finding = candidate({machine: {"fork": UP}})
    with pytest.raises(DomainError, match="without a reason"):
        invalidate(finding, actor="ada", why=Why.NOISE, reason=" ")
    finding.advance(Finding.State.SUPERSEDED, because("newer"))
    with pytest.raises(DomainError, match="it stays so"):
        invalidate(finding, actor="ada", why=Why.NOISE, reason="late")


def test_an_older_claim_that_nobody_heard_of_ends_with_its_series(machine: Machine) -> None:
    older, _newer = versions()
    finding = candidate({machine: {"fork": UP}}, older)
    tend_life()
    assert (state_of(finding), finding.reason) == (Finding.State.SUPERSEDED, "version 2 arrived")


@pytest.mark.parametrize(
    "state", [Finding.State.REPORTED, Finding.State.BISECTING, Finding.State.ACCEPTED, Finding.State.FIXED]
)
def test_what_was_told_or_decided_stays_until_the_newer_version_is_judged(machine: Machine, state: str) -> None:
    older, newer = versions()
    finding = candidate({machine: {"fork": UP}}, older)
    Finding.objects.filter(pk=finding.pk).update(state=state)
    tend_life()
    assert state_of(finding) == state
    follower = candidate({machine: {"fork": SAME}}, newer)
    begin_checks(follower)
    assert (state_of(finding), state_of(follower)) == (Finding.State.SUPERSEDED, Finding.State.CONFIRMED)
    assert finding.reason == f"version 2 is judged: finding {follower.pk}"
    assert follower.previous == finding


def test_nobody_looks_for_the_patch_in_a_version_that_is_replaced(machine: Machine, settings: Settings) -> None:
    settings.BISECT_HOURS = 24
    older, _newer = versions()
    finding = candidate({machine: {"fork": UP}}, older)
    Finding.objects.filter(pk=finding.pk).update(state=Finding.State.REPORTED)
    begin_forgotten(10)
    with pytest.raises(DomainError, match="a newer version has come"):
        ask_to_bisect(finding, "ada")
    finding.refresh_from_db()
    assert (finding.state, finding.checks) == (Finding.State.REPORTED, [])


def test_a_version_that_was_never_judged_is_passed_over(machine: Machine) -> None:
    older, middle = versions()
    newest = build_series(version=3)
    replace(middle, newest)
    finding = candidate({machine: {"fork": UP}}, older)
    follower = candidate({machine: {"fork": SAME}}, newest)
    begin_checks(follower)
    assert state_of(finding) == Finding.State.SUPERSEDED
    assert follower.previous == finding


def test_versions_are_compared_cell_by_cell(machine: Machine) -> None:
    other = physical("m2", "zen5")
    older, newer = versions()
    then = candidate({machine: {"fork": UP, "mmap": UP, "exec": SAME}, other: {"fork": DOWN, "pipe": UP}}, older)
    now = candidate({machine: {"fork": SAME, "mmap": UP, "exec": UP}, other: {"fork": SAME, "pipe": UNSURE}}, newer)
    assert compare_versions(now) is None
    now.previous = then
    compared = compare_versions(now)
    assert compared is not None
    told = {(row.uarch, row.name): row.what for row in compared.rows}
    assert told == {
        ("zen3", "time of fork"): "mended",
        ("zen3", "time of mmap"): "still regressed",
        ("zen3", "time of exec"): "new",
        ("zen5", "time of fork"): "worse",
        ("zen5", "time of pipe"): "cannot be compared",
    }
    assert compared.sentence == (
        "Version 2 against version 1 (each on a base of its own): new on zen3 (1); worse on zen5 (1); "
        "still regressed on zen3 (1); mended on zen3 (1); cannot be compared on zen5 (1)."
    )


def test_a_machine_that_measured_one_version_only_cannot_be_compared(machine: Machine) -> None:
    older, newer = versions()
    then = candidate({machine: {"fork": UP}}, older)
    now = candidate({physical("m2", "zen5"): {"fork": SAME}}, newer, previous=then)
    compared = compare_versions(now)
    assert compared is not None
    assert [(row.uarch, row.now_verdict, row.what) for row in compared.rows] == [("zen3", "", "cannot be compared")]
