"""Late points take their place among the last points of a watch."""

import math
from dataclasses import replace

import pytest

from server.stats.changepoints.watch import (
    WINDOW,
    Point,
    Published,
    StepState,
    Watch,
    extended,
    inserted,
    watch_from_dict,
)


def watched(revisions: range, *, published: tuple[int, ...] = ()) -> Watch:
    watch = Watch(name="t")
    for revision in revisions:
        watch = extended(watch, Point(revision, float(revision)))
    steps = tuple(Published(index, watch.revisions[index], 0.1, 5.0, 3, StepState.SUSPECT) for index in published)
    return replace(watch, published=steps)


def test_points_in_any_order_give_the_points_in_order() -> None:
    ordered = watched(range(10, 15))
    shuffled = Watch(name="t")
    for revision in (12, 10, 14, 11, 13):
        shuffled = inserted(shuffled, Point(revision, float(revision)))
    assert shuffled == ordered


def test_a_published_step_stays_at_its_revision() -> None:
    watch = inserted(watched(range(10, 30, 2), published=(2, 6)), Point(17, 1.0))
    assert [(one.index, one.revision) for one in watch.published] == [(2, 14), (7, 22)]
    assert watch.revisions[7] == 22
    assert watch_from_dict(watch.as_dict()) == watch


def test_the_oldest_point_is_forgotten_when_there_are_too_many() -> None:
    full = watched(range(0, 2 * WINDOW + 20, 2), published=(0,))
    watch = inserted(full, Point(full.revisions[5] + 1, 1.0))
    assert len(watch.values) == WINDOW
    assert watch.revisions[0] == full.revisions[1]
    assert watch.seen == full.seen + 1


@pytest.mark.parametrize("point", [Point(1, 1.0), Point(101, math.nan)])
def test_what_is_too_old_or_has_no_value_only_counts(point: Point) -> None:
    full = watched(range(10, 10 + 2 * WINDOW, 2))
    watch = inserted(full, point)
    assert (watch.revisions, watch.values, watch.seen) == (full.revisions, full.values, full.seen + 1)
    assert watch.indices[-1] == full.indices[-1] + 1
    assert watch_from_dict(watch.as_dict()) == watch


def test_a_second_point_of_a_revision_is_refused() -> None:
    with pytest.raises(ValueError, match="12 has a point already"):
        inserted(watched(range(10, 15)), Point(12, 1.0))
