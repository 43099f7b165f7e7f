"""Rows of the command line, read from JSON lines and checked; what is wrong is said with the line's number."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
