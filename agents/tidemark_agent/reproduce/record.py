"""What was measured by hand, as JSON: to keep, and to hold against the same case in another boot."""

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_agent.printable import one_line
from tidemark_agent.reproduce.document import DocumentError, Published
from tidemark_agent.reproduce.here import Here
from tidemark_agent.version import agent_version

FORMAT, VERSION = "tidemark-reproduction", 1
_LONGEST = 16 * 1024 * 1024


@dataclass(frozen=True)
class Record:
    """An earlier measurement: values without warm-up by (core type, metric)."""

    benchmark: str
    version: str
    case: str
    boot_id: str
    kernel: str
    build_id: str
    values: Mapping[tuple[str, str], tuple[float, ...]]

    def median(self, core_type: str, metric: str) -> float | None:
        values = self.values.get((core_type, metric))
        return statistics.median(values) if values else None


def record_of(published: Published, here: Here) -> dict[str, Any]:
    """`here` as JSON, with all values and with what the machine and its kernel are."""
    facts = here.facts
    return {
        "format": FORMAT,
        "version": VERSION,
        "agent": agent_version(),
        "benchmark": published.benchmark,
        "benchmark_version": here.version,
        "case": published.case,
        "boot_id": here.boot_id,
        "kernel": facts.kernel_release,
        "build_id": facts.kernel_build_id,
        "cmdline": facts.cmdline,
        "uarch": facts.uarch,
        "model_name": facts.model_name,
        "virtual": facts.virtual,
        "flags": list(facts.flags),
        "shortcomings": list(here.shortcomings),
        "results": [
            {
                "core_type": result.core_type,
                "outcome": result.outcome,
                "reason": result.reason,
                "warmup": result.warmup,
                "values": {metric: list(values) for metric, values in result.values.items()},
                "programs": dict(result.programs),
                "evidence": "" if result.outcome == "measured" else result.evidence,
            }
            for result in here.results
        ],
    }


def read_record(path: Path) -> Record:
    """A file that `--json` wrote; raises DocumentError that says what is wrong with it."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(_LONGEST + 1)
        if len(raw) > _LONGEST:
            raise DocumentError(f"{path} is larger than {_LONGEST} bytes")
        data = json.loads(raw)
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise DocumentError(f"{path} was not written by reproduce --json")
        return Record(
            benchmark=str(data["benchmark"]),
            version=str(data["benchmark_version"]),
            case=str(data["case"]),
            boot_id=one_line(str(data["boot_id"]), 40),
            kernel=one_line(str(data["kernel"]), 60),
            build_id=one_line(str(data["build_id"]), 64),
            values={
                (str(result["core_type"]), str(metric)): _numbers(values[_warmup(result) :])
                for result in data["results"]
                for metric, values in result["values"].items()
            },
        )
    except (OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DocumentError(f"{path} cannot be used: {one_line(repr(error), 200)}") from error


def _warmup(result: Mapping[str, Any]) -> int:
    warmup = int(result["warmup"])
    if warmup < 0:
        raise ValueError(f"warmup is {warmup}")
    return warmup


def _numbers(values: list[Any]) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise ValueError("a value is no finite number from 0")
    return numbers
