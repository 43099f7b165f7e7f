import json
from collections.abc import Sequence

import numpy as np
import pytest

from server.stats.changepoints import nominations
from server.stats.changepoints.fleet import Nominate
from server.stats.changepoints.steps import STRICT, Step
from server.stats.changepoints.timeline import TimelineValues
from server.stats.changepoints.watch import (
    SETTLED_POINTS,
    WINDOW,
    Point,
    StepState,
    Watch,
    WatchNews,
    observe,
    watch_from_dict,
)


def _points(*levels: tuple[int, float], noise: float = 0.01, seed: int = 1) -> list[Point]:
    """So many points at each level."""
    means = np.concatenate([np.full(count, level) for count, level in levels])
    values = means * np.exp(noise * np.random.default_rng(seed).standard_normal(len(means)))
    return [Point(revision, float(value)) for revision, value in enumerate(values)]


def observe_all(
    watch: Watch, points: Sequence[Point], *, nominate: Nominate = nominations.nominate
) -> tuple[Watch, tuple[WatchNews, ...]]:
    news: list[WatchNews] = []
    for point in points:
        watch, some = observe(watch, point, nominate=nominate)
        news += some
    return watch, tuple(news)


def _story(news: tuple[WatchNews, ...]) -> list[tuple[str, int]]:
    return [(str(one.published.state), one.published.index) for one in news]


def test_step_is_a_suspect_after_a_few_points_and_settled_later() -> None:
    watch, news = observe_all(Watch("t"), _points((60, 100), (40, 110)))
    assert _story(news) == [("suspect", 60), ("settled", 60)]
    assert news[0].published.reported <= 66
    assert news[1].published.effect == pytest.approx(np.log(1.1), abs=0.01)
    assert [p.state for p in watch.published] == [StepState.SETTLED]


def test_quiet_timeline_has_no_news() -> None:
    assert observe_all(Watch("t"), _points((400, 100)))[1] == ()


def test_step_is_reported_once_however_long_the_watch_goes_on() -> None:
    _, news = observe_all(Watch("t"), _points((60, 100), (300, 110)))
    assert _story(news) == [("suspect", 60), ("settled", 60)]


def test_step_that_goes_back_is_two_steps() -> None:
    _, news = observe_all(Watch("t"), _points((60, 100), (20, 110), (40, 100)))
    assert [index for state, index in _story(news) if state == "settled"] == [60, 80]


def test_hiccup_of_three_points_is_no_news() -> None:
    assert observe_all(Watch("t"), _points((60, 100), (3, 130), (60, 100)))[1] == ()


def test_suspect_that_does_not_last_is_withdrawn_and_not_reported_again() -> None:
    def fickle(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        """Sure of a step at the revision 50, except for the looks at 60 to 65 points."""
        seen = int(timelines[0].revisions[-1]) + 1
        sure = 54 <= seen < 60 or seen >= 66
        return [[Step(index=50, revision=50, effect=0.1, score=9.0, points=seen - 50)] if sure else []]

    _, news = observe_all(Watch("t"), _points((80, 100)), nominate=fickle)
    assert _story(news) == [("suspect", 50), ("withdrawn", 50)]
    assert news[1].published.reported == 54


def test_settled_step_says_where_it_was_when_it_has_moved() -> None:
    def wandering(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        seen = int(timelines[0].revisions[-1]) + 1
        at = 50 if seen < 58 else 52
        return [[Step(index=at, revision=at, effect=0.1, score=9.0, points=seen - at)] if seen >= 54 else []]

    _, news = observe_all(Watch("t"), _points((80, 100)), nominate=wandering)
    assert _story(news) == [("suspect", 50), ("settled", 52)]
    assert [one.was for one in news] == [None, 50]


def test_it_does_not_matter_whether_points_come_one_by_one_or_many_at_once() -> None:
    points = _points((60, 100), (30, 110), (50, 104), noise=0.02)
    whole, news = observe_all(Watch("t"), points)
    watch = Watch("t")
    parts: list[WatchNews] = []
    for start in range(0, len(points), 9):
        watch, some = observe_all(watch, points[start : start + 9])
        watch = watch_from_dict(json.loads(json.dumps(watch.as_dict())))
        parts += some
    assert tuple(parts) == news
    assert watch == whole


def test_cost_of_a_point_does_not_grow_with_the_history() -> None:
    looked_at: list[int] = []

    def counting(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        looked_at.append(sum(len(t.values) for t in timelines))
        return [[] for _ in timelines]

    watch, _ = observe_all(Watch("t"), _points((5000, 100)), nominate=counting)
    assert len(looked_at) == 5000
    assert max(looked_at) == WINDOW
    assert len(json.dumps(watch.as_dict())) < 100 * WINDOW


def test_points_without_a_result_count_but_say_nothing() -> None:
    points = _points((60, 100), (40, 110))
    gaps = [Point(p.revision, float("nan") if p.revision % 10 == 5 else p.value) for p in points]
    watch, news = observe_all(Watch("t"), gaps)
    assert watch.seen == 100
    assert len(watch.values) == 90
    assert _story(news) == [("suspect", 60), ("settled", 60)]


def test_repeated_looks_at_noise_rarely_raise_an_alarm() -> None:
    alarms = points = 0
    for seed in range(8):
        _, news = observe_all(Watch("t"), _points((250, 100), noise=0.02, seed=seed))
        alarms += len(news)
        points += 250
    assert 1000 * alarms / points <= 1.5


def test_median_delay_is_a_few_points() -> None:
    delays = []
    for seed in range(12):
        _, news = observe_all(Watch("t"), _points((50, 100), (20, 106), seed=seed))
        delays += [one.published.reported - 50 for one in news if one.published.state == StepState.SUSPECT]
    assert len(delays) >= 12
    assert np.median(delays) <= 5


@pytest.mark.parametrize("revision", [9, 5])
def test_revision_that_is_not_a_later_one_is_refused(revision: int) -> None:
    watch, _ = observe_all(Watch("pipe on zen5"), _points((10, 100)))
    with pytest.raises(ValueError, match="pipe on zen5"):
        observe(watch, Point(revision, 100.0))


def test_stored_watch_whose_points_do_not_fit_together_is_refused() -> None:
    stored = observe_all(Watch("t"), _points((10, 100)))[0].as_dict()
    with pytest.raises(ValueError, match="do not fit"):
        watch_from_dict({**stored, "values": stored["values"][1:]})


@pytest.mark.parametrize("value", [0.0, -1.0, 1e300, -1.7e308, 1e-300, float("inf")])
def test_strange_values_are_watched_quietly(value: float) -> None:
    points = [Point(i, value if i % 2 else 1.0) for i in range(40)]
    watch, _ = observe_all(Watch("t"), points)
    assert watch.seen == 40


def test_settling_waits_for_enough_points() -> None:
    _, news = observe_all(Watch("t"), _points((60, 100), (SETTLED_POINTS - 1, 110)), nominate=nominations.nominate)
    assert _story(news) == [("suspect", 60)]


def _late(score: float, since: int) -> tuple[WatchNews, ...]:
    """What is told of a step at 50 that shows so many points after it."""

    def slow(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        seen = int(timelines[0].revisions[-1]) + 1
        found = [Step(index=50, revision=50, effect=0.1, score=score, points=seen - 50)]
        return [found if score >= threshold and seen >= 50 + since else []]

    return observe_all(Watch("t"), _points((90, 100)), nominate=slow)[1]


def test_step_that_is_found_late_is_a_suspect_first_and_settled_a_few_points_later() -> None:
    news = _late(score=9.0, since=20)
    assert _story(news) == [("suspect", 50), ("settled", 50)]
    assert [one.published.reported for one in news] == [70, 70]


def test_step_that_is_looked_at_again_and_again_has_to_be_surer_than_one_that_is_looked_at_once() -> None:
    assert _late(score=STRICT + 0.1, since=5) == ()
    assert len(_late(score=STRICT + 1.1, since=5)) == 2


def test_second_step_five_points_after_the_first_is_published_too() -> None:
    def twice(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        seen = int(timelines[0].revisions[-1]) + 1
        return [[Step(at, at, 0.1, threshold + 5, seen - at) for at in (50, 55) if seen >= at + 4]]

    _, news = observe_all(Watch("t"), _points((80, 100)), nominate=twice)
    assert [index for state, index in _story(news) if state == "settled"] == [50, 55]


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": None},
        {"machine": 3},
        {"better": "faster"},
        {"seen": 5},
        {"seen": 9.5},
        {"revisions": list(range(10))[::-1]},
        {"values": [float("nan")] * 10},
        {"published": [{}]},
        {"published": 3},
    ],
)
def test_stored_watch_that_is_something_else_is_refused_by_name(wrong: dict[str, object]) -> None:
    stored = observe_all(Watch("t"), _points((10, 100)))[0].as_dict()
    with pytest.raises(ValueError, match=r"timeline (t|None): "):
        watch_from_dict({**stored, **wrong})
