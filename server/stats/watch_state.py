"""What is remembered of a watched timeline between two points, as plain data that can be stored."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import pairwise
from operator import index
from typing import Any, Literal, cast

import numpy as np

from server.stats.timelines import Timeline

# The last points are looked at: enough for the noise and two levels, few enough to be fast.
WINDOW = 120


class State(StrEnum):
    SUSPECT = "suspect"
    SETTLED = "settled"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Point:
    """A new value of the timeline. A value that is not finite counts as a point without a result."""

    revision: int
    value: float


@dataclass(frozen=True)
class Published:
    """A step as it stands.

    `index` and `revision` are the first of the new regime, `effect` is the log ratio after/before (where values
    have no logarithm, the difference in units of the usual value among the last points), `reported` is how many points
    there were when it was first published.
    """

    index: int
    revision: int
    effect: float
    score: float
    reported: int
    state: State


@dataclass(frozen=True)
class Watch:
    """The last points of a timeline that have a value, and what was published among them.

    `seen` counts all points. `indices`, `revisions` and `values` (up to WINDOW) are those of the last points.
    """

    name: str
    machine: str = ""
    benchmark: str = ""
    better: Literal["lower", "higher", ""] = ""
    seen: int = 0
    indices: tuple[int, ...] = ()
    revisions: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    published: tuple[Published, ...] = ()

    def timeline(self) -> Timeline:
        """The last points as a timeline of their own; its indices count from the first of them."""
        return Timeline(
            name=self.name,
            values=np.array(self.values, dtype=np.float64),
            revisions=np.array(self.revisions, dtype=np.int64),
            machine=self.machine,
            benchmark=self.benchmark,
            better=self.better,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, for JSON; `watch_from_dict` reads it."""
        plain = asdict(self)
        for name in ("indices", "revisions", "values", "published"):
            plain[name] = list(plain[name])
        plain["published"] = [{**one, "state": str(one["state"])} for one in plain["published"]]
        return plain


def watch_from_dict(stored: Mapping[str, Any]) -> Watch:
    """The watch as `as_dict` wrote it. Raises ValueError naming the timeline when it is something else."""
    name = stored.get("name")
    try:
        watch = _read(stored)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"timeline {name}: not a stored watch: {error!r}") from error
    if not len(watch.indices) == len(watch.revisions) == len(watch.values) <= WINDOW:
        raise ValueError(f"timeline {name}: the stored points do not fit together")
    orderly = _increase(watch.indices) and _increase(watch.revisions) and all(map(math.isfinite, watch.values))
    if not orderly or (watch.indices and not 0 <= watch.indices[0] <= watch.indices[-1] < watch.seen):
        raise ValueError(f"timeline {name}: the stored points are not in order")
    if any(one.index not in watch.indices for one in watch.published):
        raise ValueError(f"timeline {name}: a stored step is at none of the points")
    return watch


def _read(stored: Mapping[str, Any]) -> Watch:
    names = {key: stored[key] for key in ("name", "machine", "benchmark", "better")}
    if not all(isinstance(one, str) for one in names.values()):
        raise TypeError("names must be text")
    if names["better"] not in ("lower", "higher", ""):
        raise ValueError(f"better is {names['better']!r}, neither lower nor higher")
    return Watch(
        name=names["name"],
        machine=names["machine"],
        benchmark=names["benchmark"],
        better=cast("Literal['lower', 'higher', '']", names["better"]),
        seen=index(stored["seen"]),
        indices=tuple(index(one) for one in stored["indices"]),
        revisions=tuple(index(one) for one in stored["revisions"]),
        values=tuple(float(one) for one in stored["values"]),
        published=tuple(_published(one) for one in stored["published"]),
    )


def _published(stored: Mapping[str, Any]) -> Published:
    return Published(
        index=index(stored["index"]),
        revision=index(stored["revision"]),
        effect=float(stored["effect"]),
        score=float(stored["score"]),
        reported=index(stored["reported"]),
        state=State(stored["state"]),
    )


def _increase(numbers: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(numbers))


def extended(watch: Watch, point: Point) -> Watch:
    """The watch with one more point, before anything is judged. Raises ValueError when its revision is no later one."""
    if watch.revisions and point.revision <= watch.revisions[-1]:
        raise ValueError(f"timeline {watch.name}: revision {point.revision} does not follow {watch.revisions[-1]}")
    if not math.isfinite(point.value):
        return replace(watch, seen=watch.seen + 1)
    indices = (*watch.indices, watch.seen)[-WINDOW:]
    return replace(
        watch,
        seen=watch.seen + 1,
        indices=indices,
        revisions=(*watch.revisions, point.revision)[-WINDOW:],
        values=(*watch.values, point.value)[-WINDOW:],
        published=tuple(p for p in watch.published if p.index >= indices[0]),
    )
