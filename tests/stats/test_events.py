import numpy as np
import pytest

from server.stats.changepoints.causes import Move, book, explain_place, without
from server.stats.changepoints.shifts import trace
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.fleets import everything_of, fleet

ERROR = 0.003


def _moves(effects: dict[str, list[float]]) -> list[Move]:
    """What the benchmarks 0, 1, ... of each machine did."""
    return [
        Move(machine=machine, benchmark=str(i), effect=effect, error=ERROR, direction=1.0)
        for machine, shifts in effects.items()
        for i, effect in enumerate(shifts)
    ]


STILL = [0.001, -0.002, 0.0, 0.003, -0.001, 0.002]
MOVED = [0.04, 0.05, 0.03, 0.04, 0.045, 0.05]
PARTLY = [0.04, 0.05, 0.0, 0.002, -0.001, 0.05]


def test_machine_that_moves_as_a_whole_while_others_stay_has_an_event() -> None:
    found = explain_place(_moves({"a": MOVED, "b": STILL, "c": STILL}))
    assert found.events["a"] > 3
    assert max(found.events["b"], found.events["c"]) < 0


def test_benchmarks_that_move_everywhere_are_the_code() -> None:
    found = explain_place(_moves({"a": PARTLY, "b": PARTLY, "c": PARTLY}))
    assert max(found.events.values()) < 0
    assert found.machines == {"a", "b", "c"}
    assert found.benchmarks == {"0", "1", "5"}


def test_everything_that_moves_everywhere_is_the_code() -> None:
    found = explain_place(_moves({"a": MOVED, "b": MOVED, "c": MOVED}))
    assert max(found.events.values()) < 0


def test_few_benchmarks_of_one_machine_are_the_code() -> None:
    found = explain_place(_moves({"a": [0.05, 0.04, *STILL[2:]], "b": STILL, "c": STILL}))
    assert found.events["a"] < 0
    assert found.machines == {"a"}
    assert found.benchmarks == {"0", "1"}


def test_event_is_seen_beside_a_code_change_of_the_other_machines() -> None:
    code = [0.2, *STILL[1:]]
    found = explain_place(_moves({"a": MOVED, "b": code, "c": code, "d": code}))
    assert found.events["a"] > 3
    assert found.machines == {"b", "c", "d"}


def test_machine_that_moves_up_and_down_may_be_an_event_too() -> None:
    mixed = [0.04, -0.05, 0.03, -0.04, 0.045, -0.05]
    assert explain_place(_moves({"a": mixed, "b": STILL, "c": STILL})).events["a"] > 0


def test_nothing_that_moves_is_neither() -> None:
    found = explain_place(_moves({"a": STILL, "b": STILL}))
    assert max(found.events.values()) < -3
    assert found.benchmarks == frozenset()


def test_order_of_the_timelines_does_not_matter_to_the_explanation() -> None:
    moves = _moves({"a": MOVED, "b": PARTLY, "c": STILL})
    one, other = explain_place(moves), explain_place(moves[::-1])
    assert one.machines == other.machines
    assert one.benchmarks == other.benchmarks
    for machine in "abc":
        assert one.events[machine] == pytest.approx(other.events[machine], abs=1e-6)


@pytest.mark.parametrize("effect", [1e-300, 1e3, -1e3])
def test_huge_and_tiny_effects_give_finite_odds(effect: float) -> None:
    found = explain_place(_moves({"a": [effect] * 4, "b": STILL}))
    assert all(np.isfinite(odds) for odds in found.events.values())


def test_event_that_is_booked_leaves_a_level_timeline() -> None:
    members = [t for t in fleet(everything_of("zen5", 60, 0.05)) if t.machine == "zen5"]
    event = book("zen5", 5.0, [trace(t, [60]) for t in members], 62)
    assert event.revision == 60
    for timeline in members:
        level = without(timeline, event.revision, event.shifts[timeline.name]).values
        assert np.median(level[60:]) == pytest.approx(np.median(level[:60]), rel=0.01)
        assert np.array_equal(level[:60], timeline.values[:60])


def test_timeline_that_moves_far_more_than_its_machine_is_left_to_the_code() -> None:
    changes = everything_of("zen5", 60, 0.02)
    changes["zen5", "tcp"] = [(60, 0.5)]
    members = [t for t in fleet(changes) if t.machine == "zen5"]
    event = book("zen5", 5.0, [trace(t, [60]) for t in members], 60)
    assert "zen5/tcp" not in event.shifts
    assert "zen5/pipe" in event.shifts


@pytest.mark.parametrize(
    "values", [[-2.0, -2.0, 4.0, 4.0], [0.0, 0.0, 0.0, 0.0], [1e300, 1e300, 1e-300, 1e-300], [1.0, np.nan, np.inf, 2.0]]
)
def test_values_without_logarithms_or_at_the_ends_of_the_scale_are_levelled_quietly(values: list[float]) -> None:
    timeline = TimelineValues("odd", np.array(values), np.arange(4))
    levelled = without(timeline, 2, trace(timeline, [2]).values[-1] - trace(timeline, [2]).values[0]).values
    assert np.array_equal(np.isfinite(levelled), np.isfinite(timeline.values))


def test_place_without_moves_has_no_explanation() -> None:
    found = explain_place([])
    assert (found.events, found.machines, found.benchmarks) == ({}, frozenset(), frozenset())


@pytest.mark.parametrize(("effect", "error"), [(float("nan"), 0.01), (0.1, float("nan")), (float("inf"), 0.01)])
def test_move_that_is_no_number_is_refused_by_name(effect: float, error: float) -> None:
    with pytest.raises(ValueError, match="pipe on zen5"):
        explain_place([Move("zen5", "pipe", effect, error, 1.0)])


def test_largest_numbers_are_levelled_without_overflow() -> None:
    values = np.array([-1.7e308, 1.7e308] * 20)
    level = without(TimelineValues("t", values, np.arange(40)), 20, 1e6)
    assert bool(np.all(np.isfinite(level.values)))
    assert trace(level).values.shape == (40,)
