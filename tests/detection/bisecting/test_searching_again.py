"""Searches that ended without an answer, and are begun once more."""

import io
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import call_command
from django.template.loader import render_to_string
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.errors import DomainError
from server.dashboard.verdicts.search_steps import step_lines
from server.detection.bisection.conclusion import ask_to_bisect, cancel_by_hand
from server.detection.bisection.step import bisections_of
from server.detection.findings.checks import Check, CheckOutcome, Name, add_check, checks_named
from server.detection.lifecycle.ledger import accept, expire_acceptances, withdraw_acceptance
from server.detection.models import Bisection, BisectionStep, Comparison, Finding
from server.detection.sweep import tend_bisections
from server.lab.models import Trial
from server.sources.models import Series
from tests.detection.bisecting.world import World, judged, make_world, zen3, zen5

pytestmark = pytest.mark.django_db

Kind, Answer = BisectionStep.Kind, BisectionStep.Answer
_SESSION_HOURS = 8 / 60


def begun(where: Path, patches: int = 3, slow: str = "p2") -> tuple[World, Finding]:
    """A finding whose search has asked for its first step."""
    world = make_world(where, patches)
    machine = zen3()
    world.costs[machine.name] = {slow: 1.7}
    finding = judged(world, machine)
    tend_bisections()
    return world, finding


def state_of(finding: Finding) -> tuple[str, str]:
    finding.refresh_from_db()
    return finding.state, finding.bisections.get().state


def test_who_asks_anew_gets_fresh_ends_tries_and_budget(tmp_path: Path, settings: Settings) -> None:
    settings.BISECT_HOURS = _SESSION_HOURS
    world, finding = begun(tmp_path, 6, "p5")
    world.run()
    assert state_of(finding) == ("confirmed", "gave-up")
    assert finding.bisections.get().low == 3
    # What the second round takes, one of its steps twice: the session of the first counts no more.
    settings.BISECT_HOURS = 7 * _SESSION_HOURS
    ask_to_bisect(finding, "ada")
    with pytest.raises(DomainError, match="is being bisected"):
        ask_to_bisect(finding, "ada")
    assert state_of(finding) == ("bisecting", "ends")
    bisection = finding.bisections.get()
    assert (bisection.round, bisection.low, bisection.high) == (2, 0, 6)
    world.run()
    assert state_of(finding) == ("confirmed", "found")
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[5]
    numbers = list(bisection.steps.values_list("number", "round", "kind", "index"))
    assert numbers[:2] == [(1, 1, Kind.ENDS, 6), (2, 1, Kind.MIDDLE, 3)]
    assert numbers[2:4] == [(3, 2, Kind.ENDS, 6), (4, 2, Kind.MIDDLE, 3)]
    assert {row.trial.purpose for row in bisection.steps.filter(number=3) if row.trial} == {Trial.Purpose.BISECT}
    (shown,) = bisections_of(finding)
    assert (shown.round, [step.earlier for step in shown.steps]) == (2, [True, True, *[False] * 6])
    # What all rounds cost.
    assert shown.sessions == 7
    told = {"bisection": shown, "lines": step_lines(finding, [shown])[shown.id]}
    assert render_to_string("dashboard/_bisection.html", told).count("search 1, which ended") == 2
    out = io.StringIO()
    call_command("bisect", str(finding.pk), stdout=out)
    assert out.getvalue().count("(search 1, which ended)") == 2
    with pytest.raises(DomainError, match="was bisected already, with an answer"):
        ask_to_bisect(finding, "ada")


@pytest.mark.parametrize("how", ["withdrawn", "expired"])
def test_an_acceptance_that_ends_brings_the_search_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    world, finding = begun(tmp_path)
    end = clock.now() + timedelta(days=30)
    line = accept(finding, actor="ada", reason="a price worth paying", expires_at=end)
    world.run()
    assert state_of(finding) == ("accepted", "canceled")
    if how == "withdrawn":
        withdraw_acceptance(line, actor="bob", reason="it is not")
    else:
        with monkeypatch.context() as later:
            later.setattr(clock, "now", lambda: end + timedelta(seconds=1))
            assert expire_acceptances() == 1
    for _ in range(2):
        tend_bisections()
        assert state_of(finding) == ("bisecting", "ends")
        assert finding.bisections.get().round == 2
    if how == "withdrawn":
        world.run()
        assert state_of(finding) == ("confirmed", "found")


def test_an_acceptance_that_ends_before_the_sweep_saw_it_interrupts_nothing(tmp_path: Path) -> None:
    world, finding = begun(tmp_path)
    line = accept(finding, actor="ada", reason="a price worth paying")
    withdraw_acceptance(line, actor="ada", reason="it is not")
    tend_bisections()
    assert state_of(finding) == ("bisecting", "searching")
    assert finding.bisections.get().round == 1
    assert world.work()


def test_what_a_person_canceled_comes_back_only_when_a_person_asks(tmp_path: Path) -> None:
    world, finding = begun(tmp_path)
    cancel_by_hand(finding, "ada", "it is known")
    world.run()
    assert state_of(finding) == ("confirmed", "canceled")
    ask_to_bisect(finding, "bob")
    tend_bisections()
    assert state_of(finding) == ("bisecting", "ends")
    assert finding.bisections.get().steps.get(answer="").round == 2


def test_nobody_looks_for_what_no_cell_claims_any_more(tmp_path: Path) -> None:
    world, finding = begun(tmp_path)
    line = accept(finding, actor="ada", reason="a price worth paying")
    world.run()
    finding.verdicts.update(verdict="inconclusive")
    withdraw_acceptance(line, actor="ada", reason="it is not")
    tend_bisections()
    assert state_of(finding) == ("confirmed", "gave-up")
    with pytest.raises(DomainError, match="no cell speaks for its change there any more"):
        ask_to_bisect(finding, "ada")
    assert finding.bisections.get().round == 1


@pytest.mark.parametrize("why", ["superseded", "switched off"])
def test_what_may_not_be_searched_is_not_searched_again(tmp_path: Path, settings: Settings, why: str) -> None:
    world, finding = begun(tmp_path)
    line = accept(finding, actor="ada", reason="a price worth paying")
    world.run()
    if why == "superseded":
        Series.objects.update(state=Series.State.SUPERSEDED)
    else:
        settings.BISECT_HOURS = 0
    withdraw_acceptance(line, actor="ada", reason="it is not")
    tend_bisections()
    assert state_of(finding) == ("confirmed", "canceled")
    with pytest.raises(DomainError, match="this site does not bisect"):
        ask_to_bisect(finding, "ada")


def test_only_machines_without_an_answer_search_again(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    one, other = zen3(), zen5()
    world.costs = {one.name: {"p2": 1.7}, other.name: {"p2": 1.7}}
    finding = judged(world, one, other)
    tend_bisections()
    BisectionStep.objects.filter(answer="", bisection__machine=other).update(
        created_at=clock.now() - timedelta(days=3, minutes=1)
    )
    world.run()
    states = dict(finding.bisections.values_list("machine__name", "state"))
    assert states == {one.name: Bisection.State.FOUND, other.name: Bisection.State.GAVE_UP}
    ask_to_bisect(finding, "ada")
    rounds = {row.machine.name: (row.state, row.round) for row in finding.bisections.all()}
    assert rounds == {one.name: (Bisection.State.FOUND, 1), other.name: (Bisection.State.ENDS, 2)}
    # What the one found stands meanwhile.
    finding.refresh_from_db()
    assert finding.culprit is not None


def test_what_an_earlier_search_took_away_stays_away(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    one, other = zen3(), zen5()
    world.costs = {one.name: {"p2": 1.7}, other.name: {"p2": 1.2}}
    finding = judged(world, one, other)
    earlier = Check(
        Name.AGAIN, CheckOutcome.FAILED, "not seen", machine=other.name, uarch="zen5", comparisons=(999_999,)
    )
    add_check(finding, earlier)
    Comparison.objects.filter(session__machine=other).update(computed_at=clock.now() - timedelta(days=8))
    del world.costs[other.name]
    world.run()
    finding.refresh_from_db()
    target = finding.bisections.get(machine=other).target_id
    assert [row["comparisons"] for row in checks_named(finding, Name.AGAIN)] == [[999_999], [target]]
