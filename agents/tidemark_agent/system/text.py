"""Text of others: cut, cleaned, printable, and the output of programs read line by line."""

import json
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_a-z])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# The kernel's stamp before a message of its own, which may stand in the middle of a program's line.
PRINTK = re.compile(r"\[ *\d+\.\d{6}\] ")


def clean_text(raw: bytes) -> str:
    """Bytes of a console or a program as text: without escape sequences, carriage returns and other controls."""
    text = raw.decode("utf-8", errors="replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def last_bytes(text: str, count: int) -> str:
    """The end of `text` that fits into `count` bytes of UTF-8."""
    return text.encode("utf-8", errors="replace")[-count:].decode("utf-8", errors="ignore")


_LONGEST = 300
# Controls (escape sequences begin with one), format characters (they turn the direction of writing), surrogates.
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def one_line(text: str, longest: int = _LONGEST) -> str:
    """`text` in one line without anything that a terminal would act on, cut to `longest` characters."""
    # Cut before it is looked at: it may be megabytes.
    words = " ".join(text[: 4 * longest].split())
    plain = "".join("?" if unicodedata.category(letter) in _UNPRINTABLE else letter for letter in words)
    return plain if len(plain) <= longest else f"{plain[: longest - 3]}..."


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
