"""The rows of the command line: pairs of kernels and histories as JSON lines in, predictions out."""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from server.stats.cells import Cell, CellComparison
from server.stats.changepoints import fleet, nominations
from server.stats.changepoints.fleet import Nominate
from server.stats.changepoints.timeline import TimelineValues
from server.stats.changepoints.watch import Point, StepState, Watch, observe
from server.stats.comparison.verdicts import compare

Row = dict[str, Any]
Check = Callable[[Any], bool]


# Whole numbers beyond the range of floats are values of no metric.
_LARGEST_BITS = 1023


def _is_number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and value.bit_length() <= _LARGEST_BITS
    return isinstance(value, float)


def _are_numbers(value: object) -> bool:
    return isinstance(value, list) and all(_is_number(item) for item in value)


def _are_boots(value: object) -> bool:
    return isinstance(value, list) and all(_are_numbers(boot) for boot in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# What a row must have, what the check looks for, and how that is said.
HISTORY: Mapping[str, tuple[Check, str]] = {"id": (_is_text, "a text"), "values": (_are_numbers, "a list of numbers")}
PAIR: Mapping[str, tuple[Check, str]] = {
    "id": (_is_text, "a text"),
    "base": (_are_boots, "a list of boots, each a list of numbers"),
    "patched": (_are_boots, "a list of boots, each a list of numbers"),
}
TASK: Mapping[str, tuple[Check, str]] = {"id": (_is_text, "a text"), "prefixes": (_are_numbers, "a list of numbers")}


def read_rows(source: str, lines: Iterable[str], needed: Mapping[str, tuple[Check, str]]) -> Iterator[Row]:
    """One row for each line that is not blank. ValueError names the first bad line of `source` and its fault."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _parsed(line)
            fault = row if isinstance(row, str) else _fault(row, needed)
            if isinstance(row, str) or fault:
                raise ValueError(f"{source}, line {number}: {fault}")
            yield row


def _parsed(line: str) -> Row | str:
    """The row, or why the line is none."""
    try:
        row = json.loads(line)
    except ValueError as error:
        return f"no JSON: {error}"
    except RecursionError:
        return "no JSON: nested too deeply"
    return row if isinstance(row, dict) else f"an object is expected, not {type(row).__name__}"


def _fault(row: Row, needed: Mapping[str, tuple[Check, str]]) -> str:
    for key, (check, wanted) in needed.items():
        if key not in row:
            return f"no {key!r}"
        if not check(row[key]):
            return f"{key!r} is not {wanted}"
    return ""


def written(predictions: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    """Lines of strict JSON: a figure that is no finite number is refused, as other readers would."""
    return [json.dumps(prediction, allow_nan=False) + "\n" for prediction in predictions]


def compared(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One prediction for each row, in their order.

    A row has `id`, `base` and `patched` as [boot][run], and may have `base_pos` and `patched_pos`, the order of the
    boots. A prediction has `id`, `p`, `est` with `lo` and `hi` (the 95 % interval of patched / base - 1), and
    `time_s`, its share of the time of all.
    """
    kept = list(rows)
    cells = [_cell(row) for row in kept]
    started = time.perf_counter()
    results = compare(cells)
    spent = (time.perf_counter() - started) / max(1, len(kept))
    for row, result in zip(kept, results, strict=True):
        yield {"id": row["id"], **_figures(result), "time_s": spent}


def _cell(row: Mapping[str, Any]) -> Cell:
    return Cell(
        base=row["base"],
        patched=row["patched"],
        better="lower",
        min_effect=0.0,
        base_positions=row.get("base_pos"),
        patched_positions=row.get("patched_pos"),
        name=str(row["id"]),
    )


def _figures(result: CellComparison) -> dict[str, float | None]:
    return {
        # What could not be tested is no evidence of a difference.
        "p": 1.0 if result.p_value is None else result.p_value,
        "est": _change(result.ratio),
        "lo": _change(result.ratio_low),
        "hi": _change(result.ratio_high),
    }


def _change(ratio: float | None) -> float | None:
    return None if ratio is None or not math.isfinite(ratio) else ratio - 1


def replay(
    timeline: TimelineValues, counts: Iterable[int], *, nominate: Nominate = nominations.nominate
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
            if one.published.state != StepState.WITHDRAWN:
                standing.add(one.published.index)
        if i + 1 in wanted:
            stood[i + 1] = sorted(standing)
    return stood


# Histories as plain rows in, change points out: what the command line and the bench speak.
#
# A row has `id` and `values`, and may have `commits` (positions in first-parent history, else counted), `world` (rows
# of one fleet share it), `machine`, `benchmark` and `better`. Nothing else of a row is read.

_Given = Mapping[str, Any]
Found = dict[str, list[int]]


def predict(rows: Iterable[_Given], tasks: Sequence[_Given] = ()) -> Iterator[dict[str, Any]]:
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


def _timeline(row: _Given) -> tuple[str, TimelineValues]:
    """The row's fleet, empty when it has none, and its timeline."""
    name = str(row["id"])
    better = row.get("better", "")
    values = _numbers(name, "values", row["values"], np.float64)
    revisions = row.get("commits")
    timeline = TimelineValues(
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


def _fleets(named: Iterable[tuple[str, TimelineValues]]) -> list[list[TimelineValues]]:
    """Timelines that share a fleet together, the others each alone; in the order in which they came."""
    groups: dict[tuple[str, str], list[TimelineValues]] = {}
    for world, timeline in named:
        groups.setdefault((world, "" if world else timeline.name), []).append(timeline)
    return list(groups.values())


def _resolve(group: Sequence[TimelineValues]) -> Found:
    steps = nominations.nominate(group) if len(group) == 1 else fleet.resolve(group).steps
    return {timeline.name: [step.index for step in own] for timeline, own in zip(group, steps, strict=True)}
