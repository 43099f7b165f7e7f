"""What a benchmark.toml says, checked once where it is read. docs/benchmarks.md describes the format."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidemark_agent.cases.matrix import expand
from tidemark_agent.cases.needs import check_needs

KINDS = ("compiled", "external", "module", "script")
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
# The service stores names as slugs, which have no dot.
_CASE = re.compile(r"[a-zA-Z0-9_-]{1,60}")
DEFAULT_COMMAND = ("{program}", "{case}", "{runs}")


@dataclass(frozen=True)
class Program:
    """What is run: made from the folder (compiled, script, module) or installed by the operator (external).

    `command` makes a compiled program; `file` is what it makes, the script, or a file below an external directory.
    `parser` is the file that reads the output; without one it is JSON lines. Output that has one of `failures` in it
    (in any case of letters) is a failure, whatever the exit status; one of `absences` means that this machine cannot
    run the case. `in_place` runs an external program in its own directory.
    """

    kind: str
    command: tuple[str, ...] = ()
    file: str = ""
    name: str = ""
    parser: str = ""
    failures: tuple[str, ...] = ()
    absences: tuple[str, ...] = ()
    in_place: bool = False


@dataclass(frozen=True)
class Case:
    """One set of parameters. `command` and `environment` may name the places that cases/places.py fills in."""

    name: str
    title: str
    runs: int
    warmup: int
    timeout_seconds: int
    command: tuple[str, ...]
    file: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_one_process(self) -> bool:
        """Whether one process makes all runs; else each run is a process of its own."""
        return any("{runs}" in word for word in self.command)

    @property
    def keeps(self) -> bool:
        """Whether it wants a directory that lasts until the next boot."""
        return any("{kept}" in word for word in self.command)


@dataclass(frozen=True)
class Metric:
    """`exact`: two boots of one kernel give the same value to the last digit. `zero`: 0 is a value like others."""

    name: str
    title: str
    unit: str
    better: str
    resolution: float = 0.0
    exact: bool = False
    zero: bool = False


@dataclass(frozen=True)
class Description:
    """All of a benchmark.toml but its needs, which each case carries with its own."""

    name: str
    title: str
    follows: str
    program: Program
    cases: Mapping[str, Case]
    metrics: Mapping[str, Metric]


_Named = TypeVar("_Named", Case, Metric)


def read_description(about: Mapping[str, Any]) -> Description:
    """The description in a parsed benchmark.toml; raises ValueError, TypeError or KeyError for one that is wrong."""
    program = _program(about["program"])
    settings, needs = dict(about.get("settings", {})), dict(about.get("needs", {}))
    cases = [_case(entry, program, settings, needs) for entry in _expanded(about["cases"])]
    metrics = [_metric(entry) for entry in about["metrics"]]
    return Description(
        name=_matching(_SLUG, about["name"]),
        title=str(about["title"]),
        follows=str(about.get("follows", "")),
        program=program,
        cases=_by_name(cases),
        metrics=_by_name(metrics),
    )


def _program(entry: Mapping[str, Any]) -> Program:
    kind = str(entry["kind"])
    if kind not in KINDS:
        raise ValueError(f"program kind {kind!r} is none of {', '.join(KINDS)}")
    for key in {"compiled": ("command", "file"), "script": ("file",)}.get(kind, ("name",)):
        if not entry.get(key):
            raise ValueError(f"a {kind} program needs {key}")
    return Program(
        kind=kind,
        command=_texts(entry.get("command", [])),
        file=str(entry.get("file", "")),
        name=str(entry.get("name", "")),
        parser=str(entry.get("parser", "")),
        failures=_texts(entry.get("failures", [])),
        absences=_texts(entry.get("absences", [])),
        in_place=entry.get("in_place", False) is True,
    )


def _expanded(entries: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [plain for entry in entries for plain in expand(entry)]


def _case(entry: dict[str, Any], program: Program, settings: dict[str, Any], needs: dict[str, Any]) -> Case:
    if program.kind == "external" and not entry.get("command"):
        raise ValueError(f"case {entry['name']} of an external program needs a command")
    runs, warmup = int(entry["runs"]), int(entry.get("warmup", 1))
    if not 0 <= warmup < runs:
        raise ValueError(f"case {entry['name']}: {runs} runs of which {warmup} are warm-up")
    return Case(
        name=_matching(_CASE, entry["name"]),
        title=str(entry["title"]),
        runs=runs,
        warmup=warmup,
        timeout_seconds=int(entry.get("timeout_seconds", 60)),
        command=_texts(entry.get("command", DEFAULT_COMMAND)),
        file=str(entry.get("file", program.file)),
        environment={str(key): str(value) for key, value in entry.get("environment", {}).items()},
        parameters={str(key): str(value) for key, value in entry.get("parameters", {}).items()},
        settings={**settings, **entry.get("settings", {})},
        needs=check_needs({**needs, **entry.get("needs", {})}),
    )


def _metric(entry: Mapping[str, Any]) -> Metric:
    if entry["better"] not in {"lower", "higher", "none"}:
        raise ValueError(f"metric {entry['name']}: better is lower, higher or none")
    resolution = float(entry.get("resolution", 0.0))
    if not math.isfinite(resolution) or resolution < 0:
        raise ValueError(f"metric {entry['name']}: resolution {resolution} is no number from 0")
    return Metric(
        name=_matching(_CASE, entry["name"]),
        title=str(entry["title"]),
        unit=str(entry["unit"]),
        better=str(entry["better"]),
        resolution=resolution,
        exact=entry.get("exact", False) is True,
        zero=entry.get("zero", False) is True,
    )


def _by_name(things: list[_Named]) -> dict[str, _Named]:
    found = {thing.name: thing for thing in things}
    if not found or len(found) != len(things):
        raise ValueError("there are none, or two of one name, among the cases or metrics")
    return found


def _texts(words: object) -> tuple[str, ...]:
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{words!r} is no list of texts")
    return tuple(words)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not pattern.fullmatch(str(value)):
        raise ValueError(f"the name {value!r} is not allowed")
    return str(value)
