"""Histories as plain rows in, change points out: what the command line and the bench speak.

A row has `id` and `values`, and may have `commits` (positions in first-parent history, else counted), `world` (rows of
one fleet share it), `machine`, `benchmark` and `better`. Nothing else of a row is read.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from server.stats import changepoints, fleet
from server.stats.replay import replay
from server.stats.timelines import Timeline

Row = Mapping[str, Any]
Found = dict[str, list[int]]


def predict(rows: Iterable[Row], tasks: Sequence[Row] = ()) -> Iterator[dict[str, Any]]:
    """For each row `id`, `cps` (indices of first points of new regimes) and `time_s`; `online` where a task names it.

    A task has an `id` and `prefixes`, numbers of first points: `online` gives for each the change points that a watch
    of the row had published when it had seen so many. Raises ValueError naming the row.
    """
    prefixes = {str(task["id"]): [int(count) for count in task["prefixes"]] for task in tasks}
    for group in _fleets([_timeline(row) for row in rows]):
        begun = time.perf_counter()
        found = _resolve(group)
        spent = (time.perf_counter() - begun) / len(group)
        for timeline in group:
            prediction: dict[str, Any] = {"id": timeline.name, "cps": found[timeline.name], "time_s": spent}
            if timeline.name in prefixes:
                looks = replay(timeline, prefixes[timeline.name])
                prediction["online"] = {str(count): standing for count, standing in looks.items()}
            yield prediction


def _timeline(row: Row) -> tuple[str, Timeline]:
    """The row's fleet, empty when it has none, and its timeline."""
    name = str(row["id"])
    better = row.get("better", "")
    values = _numbers(name, "values", row["values"], np.float64)
    revisions = row.get("commits")
    timeline = Timeline(
        name=name,
        values=values,
        revisions=np.arange(len(values)) if revisions is None else _numbers(name, "commits", revisions, np.int64),
        machine=str(row.get("machine", "")),
        benchmark=str(row.get("benchmark", "")),
        better=better if better in ("lower", "higher") else "",
    )
    return str(row.get("world", "")), timeline


def _numbers(name: str, key: str, given: Any, kind: type[np.generic]) -> npt.NDArray[Any]:
    try:
        found: npt.NDArray[Any] = np.array(given, dtype=kind).reshape(len(given))
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"row {name}: {key}: {error}") from error
    return found


def _fleets(named: Iterable[tuple[str, Timeline]]) -> list[list[Timeline]]:
    """Timelines that share a fleet together, the others each alone; in the order in which they came."""
    groups: dict[tuple[str, str], list[Timeline]] = {}
    for world, timeline in named:
        groups.setdefault((world, "" if world else timeline.name), []).append(timeline)
    return list(groups.values())


def _resolve(group: Sequence[Timeline]) -> Found:
    steps = changepoints.nominate(group) if len(group) == 1 else fleet.resolve(group).steps
    return {timeline.name: [step.index for step in own] for timeline, own in zip(group, steps, strict=True)}
