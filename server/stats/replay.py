"""A history replayed point by point: what a watch would have said at each moment."""

from collections.abc import Iterable

from server.stats import changepoints
from server.stats.resolution import Nominate
from server.stats.timelines import Timeline
from server.stats.watch import observe
from server.stats.watch_state import Point, State, Watch


def replay(
    timeline: Timeline, counts: Iterable[int], *, nominate: Nominate = changepoints.nominate
) -> dict[int, list[int]]:
    """For each count of points the indices of the steps that stood then: suspects and settled ones.

    Only the points before a moment are seen at it. Raises ValueError naming the timeline for a count it does not have.
    """
    wanted = set(counts)
    wrong = sorted(count for count in wanted if not 0 < count <= len(timeline.values))
    if wrong:
        raise ValueError(f"timeline {timeline.name}: there are {len(timeline.values)} points, not {wrong[0]}")
    watch = Watch(timeline.name, machine=timeline.machine, benchmark=timeline.benchmark, better=timeline.better)
    standing, stood = set[int](), {}
    for i in range(max(wanted, default=0)):
        point = Point(int(timeline.revisions[i]), float(timeline.values[i]))
        watch, news = observe(watch, point, nominate=nominate)
        for one in news:
            standing.discard(one.published.index if one.was is None else one.was)
            if one.published.state != State.WITHDRAWN:
                standing.add(one.published.index)
        if i + 1 in wanted:
            stood[i + 1] = sorted(standing)
    return stood
