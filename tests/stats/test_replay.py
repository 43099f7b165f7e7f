from collections.abc import Sequence

import pytest

from server.stats.changepoints.steps import Step
from server.stats.changepoints.timeline import TimelineValues
from server.stats.rows import replay
from tests.stats.fleets import fleet


def test_each_moment_knows_what_stood_then() -> None:
    timeline = fleet({("m", "b"): [(50, 0.08), (80, -0.08)]}, machines=["m"], benchmarks=["b"])[0]
    assert replay(timeline, [50, 60, 79, 100]) == {50: [], 60: [50], 79: [50], 100: [50, 80]}


def test_later_points_do_not_change_an_earlier_moment() -> None:
    timeline = fleet({("m", "b"): [(50, 0.05)]}, machines=["m"], benchmarks=["b"], noise=0.02)[0]
    counts = list(range(10, 90, 7))
    whole = replay(timeline, counts)
    for count in counts:
        assert replay(timeline.until(count), [count]) == {count: whole[count]}


def test_no_moments_give_nothing() -> None:
    assert replay(fleet({}, machines=["m"], benchmarks=["b"])[0], []) == {}


@pytest.mark.parametrize("count", [0, -1, 121])
def test_moment_that_never_was_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match="m/b"):
        replay(fleet({}, machines=["m"], benchmarks=["b"])[0], [count])


def test_looks_are_those_of_a_timeline_with_its_machine_and_benchmark() -> None:
    timeline = fleet({}, machines=["m"], benchmarks=["b"])[0]
    seen: list[tuple[str, str, str]] = []

    def asked(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        seen.extend((t.machine, t.benchmark, t.better) for t in timelines if threshold)
        return [[] for _ in timelines]

    replay(timeline, [20], nominate=asked)
    assert set(seen) == {("m", "b", "lower")}
