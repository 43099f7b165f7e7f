"""Counters of one more run of a case below `perf stat`: never of a run whose time is measured."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

EVENTS = (
    "cycles",
    "instructions",
    "cache-misses",
    "dTLB-load-misses",
    "page-faults",
    "context-switches",
    "cpu-migrations",
)
_FIELDS = 3


def below_perf(perf: Path, argv: Sequence[str], output: Path) -> list[str]:
    """The command that runs `argv` and leaves its counters in `output`."""
    return [str(perf), "stat", "-x,", "-o", str(output), "-e", ",".join(EVENTS), "--", *argv]


def read_counters(text: str) -> tuple[Mapping[str, float], tuple[str, ...]]:
    """Counters by event in `perf stat -x,` output, and the events that this machine does not count.

    A line is VALUE,UNIT,EVENT,...; VALUE is `<not supported>` or `<not counted>` where there is none.
    """
    counted: dict[str, float] = {}
    missing: list[str] = []
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("#") or len(fields) < _FIELDS:
            continue
        # A kernel that may not be looked at is left out by perf itself: "cycles:u" are cycles in user space only.
        event = fields[2].strip()
        if event.partition(":")[0] not in EVENTS:
            continue
        value = _number(fields[0])
        if value is None:
            missing.append(event)
        else:
            counted[event] = value
    return counted, tuple(missing)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
