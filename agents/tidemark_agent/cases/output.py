"""Values out of what a benchmark printed: believed only when they are whole, sane and as many as were asked for."""

import json
import math
from collections.abc import Collection, Mapping, Sequence

from tidemark_agent.text import PRINTK, clean_text

LONGEST_REASON = 300


def json_values(
    lines: Sequence[str], case: str, metrics: Collection[str], zero: Collection[str] = ()
) -> dict[str, list[float]]:
    """The good values of each metric in our own protocol: `{"case": ..., "metric": ..., "value": ...}` lines."""
    found: dict[str, list[float]] = {metric: [] for metric in metrics}
    for line in lines:
        record = _json_line(line)
        metric, value = record.get("metric"), record.get("value")
        if record.get("case") == case and isinstance(metric, str) and metric in found:
            number = sane(value, may_be_zero=metric in zero)
            found[metric] += [] if number is None else [number]
    return found


def sane(value: object, *, may_be_zero: bool = False) -> float | None:
    """`value` as a number that a measurement can have; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    good = math.isfinite(number) and (number > 0 or (may_be_zero and number == 0))
    return number if good else None


def count_problem(found: Mapping[str, Sequence[float]], metrics: Collection[str], runs: int) -> str:
    """Which metric has not exactly `runs` values, or ""."""
    for metric in metrics:
        count = len(found[metric])
        if count != runs:
            return f"garbled output: {count} good values of {metric}, {runs} wanted"
    return ""


def error_text(lines: Sequence[str]) -> str:
    """What a program of ours says about its failure: `{"case": ..., "error": "why"}`."""
    for line in lines:
        error = _json_line(line).get("error")
        if isinstance(error, str):
            # JSON can spell what the console itself cannot show.
            return clean_text(error.encode("utf-8", errors="replace"))[:LONGEST_REASON]
    return ""


def _json_line(line: str) -> dict[str, object]:
    """The JSON object on a line, with a kernel message before or after it cut off; {} if there is none."""
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start or PRINTK.search(line[start:end]):
        return {}
    try:
        record = json.loads(line[start : end + 1])
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
