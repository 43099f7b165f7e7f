import dataclasses

import numpy as np
import pytest

from server.stats.changepoints.causes import PlaceExplanation, doubted
from server.stats.changepoints.fleet import resolve
from server.stats.changepoints.shifts import Shift
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.fleets import BENCHMARKS, MACHINES, Changes, everything_of, fleet


def _found(timelines: list[TimelineValues]) -> set[str]:
    steps = resolve(timelines).steps
    return {t.name for t, own in zip(timelines, steps, strict=True) if any(abs(s.revision - 60) <= 3 for s in own)}


def _signed(signs: dict[str, float], benchmarks: tuple[str, ...], size: float = 0.1) -> Changes:
    return {
        (m, b): [(60, sign * size * (0.8 + 0.08 * i))] for m, sign in signs.items() for i, b in enumerate(benchmarks)
    }


@pytest.mark.parametrize("benchmarks", [BENCHMARKS, BENCHMARKS[:4]])
@pytest.mark.parametrize("size", [0.03, 0.1])
def test_change_that_hurts_one_microarchitecture_and_helps_the_others_is_found_on_all(
    benchmarks: tuple[str, ...], size: float
) -> None:
    signs = {"zen3": -1.0, "zen5": 1.0, "icelake": 1.0}
    timelines = fleet(_signed(signs, benchmarks, size))
    assert _found(timelines) == {f"{machine}/{b}" for machine in signs for b in benchmarks}
    assert resolve(timelines).events == []


def test_change_of_opposite_sign_on_two_machines_is_the_code() -> None:
    signs = {"zen3": -1.0, "zen5": 1.0}
    timelines = fleet(_signed(signs, BENCHMARKS), machines=("zen3", "zen5"))
    assert len(_found(timelines)) == 2 * len(BENCHMARKS)
    assert resolve(timelines).events == []


def test_same_change_of_all_benchmarks_on_two_machines_is_the_code() -> None:
    timelines = fleet(_signed({"zen3": 1.0, "zen5": 1.0}, BENCHMARKS), machines=("zen3", "zen5"))
    assert len(_found(timelines)) == 2 * len(BENCHMARKS)


@pytest.mark.parametrize(("of", "moved"), [(8, 3), (14, 4), (14, 6)])
def test_change_of_some_benchmarks_on_one_machine_is_the_code(of: int, moved: int) -> None:
    names = [f"b{i:02}" for i in range(of)]
    changes = {("zen5", b): [(60, 0.07 + 0.01 * i)] for i, b in enumerate(names[:moved])}
    timelines = fleet(changes, benchmarks=names)
    assert _found(timelines) == {f"zen5/{b}" for b in names[:moved]}


def test_event_that_leaves_one_benchmark_alone_stays_an_event() -> None:
    changes = everything_of("zen5", 60, 0.05)
    del changes["zen5", "mmap"]
    found = resolve(fleet(changes))
    assert [event.machine for event in found.events] == ["zen5"]
    assert not any(found.steps)


def test_event_beside_a_change_of_other_benchmarks_stays_an_event() -> None:
    said = PlaceExplanation({"zen5": 9.0, "zen3": -9.0}, frozenset({"zen3"}), frozenset({"pipe"}))
    shifts = {b: Shift(0.05, 0.004, 25) for b in BENCHMARKS}
    assert doubted(said, {"zen5": shifts, "zen3": {"pipe": Shift(0.1, 0.004, 25)}}, {"zen5": 60}) == said


def test_machine_that_moves_the_benchmarks_of_the_code_is_counted_to_it() -> None:
    said = PlaceExplanation({"zen5": 9.0, "zen3": -9.0}, frozenset({"zen3"}), frozenset({"pipe", "fork"}))
    down = {"pipe": Shift(-0.1, 0.004, 25), "fork": Shift(-0.2, 0.004, 25)}
    found = doubted(
        said, {"zen5": down, "zen3": {b: Shift(-s.effect, s.error, 25) for b, s in down.items()}}, {"zen5": 60}
    )
    assert found.events["zen5"] < 0
    assert found.machines == {"zen3", "zen5"}


def test_machines_that_are_serviced_three_revisions_apart_keep_their_events() -> None:
    said = PlaceExplanation({"zen5": 9.0, "zen3": 9.0}, frozenset(), frozenset())
    up = {b: Shift(0.05, 0.004, 25) for b in BENCHMARKS}
    down = {b: Shift(-0.05, 0.004, 25) for b in BENCHMARKS}
    assert doubted(said, {"zen5": up, "zen3": down}, {"zen5": 60, "zen3": 63}) == said
    assert doubted(said, {"zen5": up, "zen3": down}, {"zen5": 60, "zen3": 60}).machines == {"zen3", "zen5"}


@pytest.mark.parametrize(("still", "kept"), [(1, True), (2, True), (3, False)])
def test_event_is_doubted_where_too_many_benchmarks_of_the_machine_are_still(still: int, *, kept: bool) -> None:
    said = PlaceExplanation({"zen5": 9.0}, frozenset(), frozenset())
    shifts = {b: Shift(0.001 if i < still else 0.05, 0.004, 25) for i, b in enumerate(BENCHMARKS)}
    assert (doubted(said, {"zen5": shifts}, {"zen5": 60}).events["zen5"] > 0) == kept


def test_benchmark_too_noisy_to_be_known_to_be_still_does_not_count() -> None:
    said = PlaceExplanation({"zen5": 9.0}, frozenset(), frozenset())
    shifts = {b: Shift(0.001, 0.03, 25) if i < 4 else Shift(0.05, 0.004, 25) for i, b in enumerate(BENCHMARKS)}
    assert doubted(said, {"zen5": shifts}, {"zen5": 60}) == said


def test_nothing_to_doubt_is_left_as_it_is() -> None:
    nothing = PlaceExplanation({}, frozenset(), frozenset())
    assert doubted(nothing, {}, {}) == nothing


@pytest.mark.parametrize("stride", [10, 100])
def test_it_does_not_matter_whether_every_commit_is_measured(stride: int) -> None:
    changes = {**everything_of("zen5", 40, 0.03), **_signed(dict.fromkeys(MACHINES, 1.0), ("kbuild",), 0.02)}
    timelines = fleet(changes)
    sparse = [dataclasses.replace(t, revisions=7 + stride * t.revisions) for t in timelines]
    found, spread = resolve(timelines), resolve(sparse)
    assert [[(s.index, s.revision * stride + 7) for s in own] for own in found.steps] == [
        [(s.index, s.revision) for s in own] for own in spread.steps
    ]
    assert [(e.machine, e.revision * stride + 7) for e in found.events] == [
        (e.machine, e.revision) for e in spread.events
    ]
    assert len(found.events) == 1
    assert np.count_nonzero([len(own) for own in found.steps]) == len(MACHINES)
