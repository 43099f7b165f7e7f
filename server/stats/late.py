"""A point that comes after later ones: it is put where it belongs, and looked at with the next new point."""

import math
from bisect import bisect_left
from dataclasses import replace

from server.stats.watch_state import WINDOW, Point, Watch, extended


def inserted(watch: Watch, point: Point) -> Watch:
    """The watch with a point at its place among the last ones, whatever came after it. Nothing is judged.

    Points behind it are counted one further, and so are published steps; a step that was published is not asked again
    because of it. A value that is not finite, or from before the points that are remembered, only counts. Costs as
    much as a new point. Raises ValueError for a revision that has a point already.
    """
    if not watch.revisions or point.revision > watch.revisions[-1]:
        return extended(watch, point)
    at = bisect_left(watch.revisions, point.revision)
    if watch.revisions[at] == point.revision:
        raise ValueError(f"timeline {watch.name}: revision {point.revision} has a point already")
    index = watch.indices[at]
    indices = [*watch.indices[:at], *(one + 1 for one in watch.indices[at:])]
    revisions, values = list(watch.revisions), list(watch.values)
    forgotten = at == 0 and len(values) >= WINDOW
    if math.isfinite(point.value) and not forgotten:
        indices.insert(at, index)
        revisions.insert(at, point.revision)
        values.insert(at, point.value)
    indices = indices[-WINDOW:]
    return replace(
        watch,
        seen=watch.seen + 1,
        indices=tuple(indices),
        revisions=tuple(revisions[-WINDOW:]),
        values=tuple(values[-WINDOW:]),
        published=tuple(
            moved
            for one in watch.published
            if (moved := one if one.index < index else replace(one, index=one.index + 1)).index >= indices[0]
        ),
    )
