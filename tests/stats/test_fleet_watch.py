from dataclasses import replace

import numpy as np
import pytest

from server.stats.changepoints.causes import MachineEvent
from server.stats.changepoints.timeline import TimelineValues
from server.stats.changepoints.watch import FleetNews, FleetWatch, StepState, Watch, observe_fleet
from tests.stats.fleets import BENCHMARKS, everything_of, everywhere, fleet

TWO = ("zen3", "zen5")


def _start(timelines: list[TimelineValues], count: int) -> FleetWatch:
    """Watches that know the first points of the timelines, and have reported nothing of them."""
    return FleetWatch(
        {
            t.name: Watch(
                name=t.name,
                machine=t.machine,
                benchmark=t.benchmark,
                better=t.better,
                seen=count,
                indices=tuple(range(count)),
                revisions=tuple(t.revisions[:count].tolist()),
                values=tuple(t.values[:count].tolist()),
            )
            for t in timelines
        }
    )


def _observe(timelines: list[TimelineValues], start: int, end: int) -> list[FleetNews]:
    state, news = _start(timelines, start), []
    for revision in range(start, end):
        state, some = observe_fleet(state, revision, {t.name: float(t.values[revision]) for t in timelines})
        news.append(some)
    return news


def test_code_change_is_reported_once_on_each_machine() -> None:
    timelines = fleet(everywhere("pipe", 60, 0.06), points=75, machines=TWO)
    news = _observe(timelines, 58, 75)
    told = [(name, one.published.state) for some in news for name, many in some.timelines.items() for one in many]
    assert sorted(told) == sorted(
        (f"{machine}/pipe", state) for machine in TWO for state in (StepState.SUSPECT, StepState.SETTLED)
    )
    assert [event for some in news for event in some.events] == []


def test_event_of_a_machine_is_reported_once_and_its_timelines_are_silent() -> None:
    timelines = fleet(everything_of("zen5", 60, 0.05), points=72, machines=TWO)
    news = _observe(timelines, 62, 72)
    events = [event for some in news for event in some.events]
    assert [event.machine for event in events] == ["zen5"]
    settled = [
        one for some in news for many in some.timelines.values() for one in many if one.published.state == "settled"
    ]
    assert settled == []


def test_timeline_that_is_not_watched_is_refused() -> None:
    with pytest.raises(KeyError, match="other is not watched"):
        observe_fleet(FleetWatch({"t": Watch("t")}), 1, {"other": 1.0})


def test_value_that_is_missing_is_no_error() -> None:
    state, news = observe_fleet(FleetWatch({"t": Watch("t")}), 1, {"t": float(np.nan)})
    assert state.watches["t"].seen == 1
    assert news == FleetNews({}, ())


def _observe_lagging(timelines: list[TimelineValues], start: int, end: int, late: dict[str, int]) -> list[FleetNews]:
    """As `_observe`, with machines that measure each revision so many revisions later than the others."""
    state, news = _start(timelines, start), []
    for now in range(start, end):
        for machine in dict.fromkeys(t.machine for t in timelines):
            revision = now - late.get(machine, 0)
            if revision >= start:
                here = {t.name: float(t.values[revision]) for t in timelines if t.machine == machine}
                state, some = observe_fleet(state, revision, here)
                news.append(some)
    return news


@pytest.mark.parametrize("late", [0, 3, 7])
def test_machine_that_measures_first_makes_no_event_of_a_change_of_all_benchmarks(late: int) -> None:
    changes = {(machine, b): [(60, 0.05)] for machine in TWO for b in BENCHMARKS[:4]}
    timelines = fleet(changes, points=75, machines=TWO, benchmarks=BENCHMARKS[:4])
    news = _observe_lagging(timelines, 58, 75, {"zen5": late})
    assert [event for some in news for event in some.events] == []
    reported = {name for some in news for name in some.timelines}
    assert reported == {t.name for t in timelines}


def test_event_is_told_though_the_other_machine_does_not_measure_any_more() -> None:
    timelines = fleet(everything_of("zen5", 60, 0.05), points=75, machines=TWO)
    news = _observe_lagging(timelines, 60, 75, {"zen3": 100})
    assert [event.machine for some in news for event in some.events] == ["zen5"]


def test_event_of_a_sparse_history_is_told_once() -> None:
    timelines = fleet(everything_of("zen5", 60, 0.02), points=80, machines=TWO, noise=0.012)
    state = _start(timelines, 60)
    sparse = {n: replace(w, revisions=tuple(50 * r for r in w.revisions)) for n, w in state.watches.items()}
    state = FleetWatch(sparse)
    events: list[MachineEvent] = []
    for revision in range(60, 80):
        state, some = observe_fleet(state, 50 * revision, {t.name: float(t.values[revision]) for t in timelines})
        events += some.events
    assert [event.machine for event in events] == ["zen5"]


def test_events_that_are_no_longer_among_the_points_are_forgotten() -> None:
    timelines = fleet({}, points=70, machines=TWO)
    start = FleetWatch(_start(timelines, 69).watches, (("zen5", -9), ("zen5", 30), ("gone", 30)))
    state, _ = observe_fleet(start, 69, {t.name: float(t.values[69]) for t in timelines})
    assert state.events == (("zen5", 30), ("gone", 30))
