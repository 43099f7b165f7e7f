"""What each patch of a series adds."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.bisection.walk import ask_for_walk, sentence_of, trials_of_walk, walk_of
from server.detection.models import Finding
from server.detection.sweep import tend_bisections
from server.lab.models import Machine, Trial
from server.sources.models import Series
from tests.builders import because, build_case, build_comparison, build_series, build_trial, build_trial_session
from tests.detection.bisecting.world import World, judged, make_world, zen3, zen5

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def unbisected(settings: Settings) -> None:
    settings.BISECT_HOURS = 0


def walkable(where: Path, patches: int, costs: Mapping[Machine, dict[str, float]]) -> tuple[World, Series]:
    world = make_world(where, patches)
    world.costs = {machine.name: cost for machine, cost in costs.items()}
    finding = judged(world, *costs)
    assert finding.series is not None
    return world, finding.series


def test_a_walk_says_which_patches_earn_their_place(tmp_path: Path) -> None:
    world, series = walkable(tmp_path, 3, {zen3(): {"p2": 0.7}, zen5(): {"p2": 0.7, "p3": 1.2}})
    world.comments = {"p1"}
    trials = ask_for_walk(series, "ada")
    assert [trial.key for trial in trials] == [f"series:{series.pk}:patch:{index}" for index in (1, 2, 3)]
    assert trials[0].benchmarks == ["mm-basic/fault-4k"]
    world.run()
    walk = walk_of(series)
    assert walk is not None
    assert walk.state == "all 3 patches measured"
    assert walk.rows[0].sentence == "changes no code on zen3 and zen5"
    assert walk.rows[1].sentence.startswith("improved time of fault-4k (")
    assert (
        walk.rows[2].sentence == "adds nothing beyond 1.0 % on zen3; regressed time of fault-4k (20 % slower) on zen5"
    )
    last = next(cell for cell in walk.rows[2].cells if cell.machine == "zen5-a")
    assert last.cumulative == pytest.approx(0.84, rel=0.01)
    assert last.cumulative_low is not None
    assert last.cumulative_high is not None
    assert last.cumulative_low < 0.84 < last.cumulative_high
    assert len(walk.closing) == 2
    assert all("the patches add up to the whole series (" in line for line in walk.closing)


def test_what_a_patch_costs_does_not_hide_behind_what_it_gains() -> None:
    session = build_trial_session(build_trial(purpose="patch", state=Trial.State.DONE), zen3())
    gains = [build_comparison(session, "improved", case=build_case(f"copy-{n}"), ratio=0.3 + n / 10) for n in (1, 2)]
    cost = build_comparison(session, "regressed", case=build_case("fault-4k"), ratio=1.3)
    assert session.trial is not None
    said = sentence_of(session.trial, [session], [*gains, cost])
    assert said == (
        "regressed time of fault-4k (30 % slower), improved time of copy-1 (2.50x faster) and 1 more on zen3"
    )


def test_the_largest_of_several_changes_is_so_on_logarithms() -> None:
    session = build_trial_session(build_trial(purpose="patch", state=Trial.State.DONE), zen3())
    rows = [build_comparison(session, "improved", case=build_case(f"c{ratio}"), ratio=ratio) for ratio in (0.3, 0.6)]
    assert session.trial is not None
    assert sentence_of(session.trial, [session], rows).startswith("improved time of c0.3 (3.33x faster) and 1 more")


def test_asking_twice_makes_one_walk_and_keeps_who_asked(tmp_path: Path) -> None:
    machine, other = zen3(), zen5()
    _world, series = walkable(tmp_path, 2, {machine: {"p2": 0.7}})
    assert ask_for_walk(series, "ada") == ask_for_walk(series, "bob") == trials_of_walk(series)
    asked = Transition.objects.filter(subject="series", subject_id=series.pk, actor="ada")
    assert asked.get().reason == "its 2 patches are to be measured one by one"
    with pytest.raises(DomainError, match="asked for on other machines"):
        ask_for_walk(series, "ada", [other])


def test_a_series_of_one_patch_or_without_finding_has_no_walk(tmp_path: Path) -> None:
    _world, series = walkable(tmp_path, 1, {zen3(): {"p1": 0.7}})
    with pytest.raises(DomainError, match="is one patch"):
        ask_for_walk(series, "ada")
    with pytest.raises(DomainError, match="is not applied"):
        ask_for_walk(build_series(), "ada")
    series.advance(Series.State.SUPERSEDED, because("version 2 arrived"))
    with pytest.raises(DomainError, match="a newer version has replaced"):
        ask_for_walk(series, "ada")
    assert walk_of(series) is None


def test_short_series_that_changed_something_are_walked_where_the_site_wants_it(
    tmp_path: Path, settings: Settings
) -> None:
    _world, series = walkable(tmp_path, 2, {zen3(): {"p2": 0.7}})
    tend_bisections()
    assert trials_of_walk(series) == []
    settings.WALK_PATCHES = 2
    tend_bisections()
    tend_bisections()
    assert len(trials_of_walk(series)) == 2


def test_the_commands_ask_show_and_refuse(tmp_path: Path, settings: Settings) -> None:
    world, series = walkable(tmp_path, 2, {zen3(): {"p2": 0.7}})
    with pytest.raises(CommandError, match="nobody asked"):
        call_command("walk", str(series.pk))
    with pytest.raises(CommandError, match="--by"):
        call_command("walk", str(series.pk), "--ask")
    with pytest.raises(CommandError, match="there is no machine ghost"):
        call_command("walk", str(series.pk), "--ask", "--by", "ada", "--machine", "ghost")
    call_command("walk", str(series.pk), "--ask", "--by", "ada", stdout=StringIO())
    settings.BISECT_HOURS = 24
    finding = Finding.objects.get()
    finding.advance(Finding.State.REPORTED, because("told"))
    call_command("bisect", str(finding.pk), "--ask", "--by", "ada", stdout=StringIO())
    world.run()
    said = StringIO()
    call_command("walk", str(series.pk), stdout=said)
    assert "1. mm: Change 1: adds nothing beyond 1.0 % on zen3" in said.getvalue()
    assert "2. mm: Change 2: improved time of fault-4k (30 % faster) on zen3" in said.getvalue()
    said = StringIO()
    call_command("bisect", str(finding.pk), stdout=said)
    assert f"finding {finding.pk} is reported: made by patch 2 of 2: mm: Change 2" in said.getvalue()
    assert "1. ends " in said.getvalue()
    with pytest.raises(CommandError, match="bisected already"):
        call_command("bisect", str(finding.pk), "--ask", "--by", "ada")
    with pytest.raises(CommandError, match="not being bisected"):
        call_command("bisect", str(finding.pk), "--cancel", "enough", "--by", "ada")
    assert Trial.objects.filter(purpose=Trial.Purpose.PATCH, state=Trial.State.DONE).count() == 2
