import numpy as np
import pytest

from server.stats.fleet_watch import FleetNews, FleetWatch, observe_fleet
from server.stats.timelines import Timeline
from server.stats.watch_state import State, Watch
from tests.stats.fleets import everything_of, everywhere, fleet

TWO = ("zen3", "zen5")


def _start(timelines: list[Timeline], count: int) -> FleetWatch:
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


def _observe(timelines: list[Timeline], start: int, end: int) -> list[FleetNews]:
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
        (f"{machine}/pipe", state) for machine in TWO for state in (State.SUSPECT, State.SETTLED)
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
