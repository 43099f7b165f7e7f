"""One timeline watched as its points come in: each step is published once and then stays where it is.

Detectors that look again at every new point see chance steps come and go, and report each of them. A watch publishes a
step as a *suspect* when it is first sure, and decides once more when enough points have come: it is *settled* for good,
at the place that looks best then, or *withdrawn*. Neither is published again. A new point costs one look at the last
points (WINDOW), however long the history is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from server.stats import changepoints
from server.stats.resolution import Nominate
from server.stats.steps import STRICT, Step
from server.stats.watch_state import Point, Published, State, Watch, extended

# From this many points after the step its level is known, and the step is settled or withdrawn.
SETTLED_POINTS = 12
# A suspect that was found late is settled or withdrawn after so many more points: one look is not enough.
CONFIRMING_POINTS = 4
# A level is known from so many points before a step; until then nothing is reported.
KNOWN_POINTS = 12
# What did not show in this many points will not be reported any more: each look at an old place only adds false alarms.
LATEST = 40
# Score (-log10 p) for being published. Fewer are found with a higher one, many more false alarms raised with a lower.
SURE = STRICT
# What did not show at first is asked for three times as much (half a power of ten): drift grows into a step slowly, and
# is looked at each time.
SURE_LATE = STRICT + 0.5
# A suspect is settled with this score: it has been sure once already.
STAYING = 2.0
# Two steps of one direction nearer than so many points are one step, seen twice.
NEAR = 5


@dataclass(frozen=True)
class News:
    """What became known with a point. `was` is the index under which a step was published that has moved since."""

    published: Published
    was: int | None = None


def observe(
    watch: Watch, point: Point, *, nominate: Nominate = changepoints.nominate
) -> tuple[Watch, tuple[News, ...]]:
    """The watch after the point, and what is new. Raises ValueError for a revision that is not a later one."""
    watch = extended(watch, point)
    if not watch.indices or watch.indices[-1] != watch.seen - 1:
        return watch, ()
    steps = nominate([watch.timeline()], threshold=STAYING)[0]
    return judged(watch, steps, [step for step in steps if sure(watch, step)])


def sure(watch: Watch, step: Step) -> bool:
    """Whether a step among the last points has the score to be published."""
    return step.score >= (SURE if _points_since(watch, step.index) < SETTLED_POINTS else SURE_LATE)


def judged(watch: Watch, steps: Sequence[Step], certain: Sequence[Step]) -> tuple[Watch, tuple[News, ...]]:
    """Settle what is due and publish what is new.

    `steps` are all that were found among the last points, weak ones as well, with indices into these points; `certain`
    are those that may be published.
    """
    now = [_decided(watch, one, steps) for one in watch.published]
    news = [
        News(after, before.index if after.index != before.index else None)
        for before, after in zip(watch.published, now, strict=True)
        if after.state != before.state
    ]
    fresh = [_first(watch, step) for step in certain if _in_time(watch, step) and not _known(watch, step, now)]
    published = tuple(sorted([*now, *fresh], key=lambda one: one.index))
    return replace(watch, published=published), (*news, *(News(one) for one in fresh))


def _points_since(watch: Watch, place: int) -> int:
    return len(watch.values) - place


def _in_time(watch: Watch, step: Step) -> bool:
    return step.index >= KNOWN_POINTS and _points_since(watch, step.index) <= LATEST


def _first(watch: Watch, step: Step) -> Published:
    return Published(watch.indices[step.index], step.revision, step.effect, step.score, watch.seen, State.SUSPECT)


def _decided(watch: Watch, published: Published, steps: Sequence[Step]) -> Published:
    """What has become of a published step: only a suspect that is old enough changes."""
    place = watch.indices.index(published.index)
    known = _points_since(watch, place) >= SETTLED_POINTS and watch.seen >= published.reported + CONFIRMING_POINTS
    if published.state != State.SUSPECT or not known:
        return published
    same = [s for s in steps if abs(s.index - place) < NEAR and (s.effect > 0) == (published.effect > 0)]
    if not same:
        return replace(published, state=State.WITHDRAWN)
    best = min(same, key=lambda s: (abs(s.index - place), s.index))
    return replace(
        published,
        index=watch.indices[best.index],
        revision=best.revision,
        effect=best.effect,
        score=best.score,
        state=State.SETTLED,
    )


def _known(watch: Watch, step: Step, published: Iterable[Published]) -> bool:
    places = [(watch.indices.index(one.index), one.effect > 0) for one in published]
    return any(abs(place - step.index) < NEAR and up == (step.effect > 0) for place, up in places)
