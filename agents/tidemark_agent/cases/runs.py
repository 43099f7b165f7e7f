"""All runs of one case: counters, output read by parsers, values kept."""

import contextlib
import functools
import io
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark
from tidemark_agent.cases.execution import Execution, Executor, Limits
from tidemark_agent.cases.programs import CaseEndedError, StuckError, Surroundings, find_program
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.disk import read_strange
from tidemark_agent.system.text import count_problem, json_values, sane
from tidemark_agent.wire.assignment import PlannedCase

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


Parse = Callable[[str, str], Sequence[tuple[str, float]]]


def values_in(benchmark: Benchmark, text: str, case: str, metrics: Sequence[str]) -> Mapping[str, list[float]]:
    """The values that one process printed, by metric; raises CaseEndedError if there is anything else but them."""
    require_presence(benchmark, text)
    line = _line_with(text, benchmark.program.failures)
    if line:
        raise CaseEndedError("failed", line, text)
    zero = {metric.name for metric in benchmark.metrics.values() if metric.zero}
    parse = _parser_of(benchmark)
    if parse is None:
        return json_values(text.split("\n"), case, metrics, zero)
    try:
        pairs = parse(text, case)
    except ValueError as error:
        raise CaseEndedError("garbled", f"garbled output: {error}", text) from error
    return _checked(pairs, metrics, zero, text)


def require_presence(benchmark: Benchmark, text: str) -> None:
    """Raise CaseEndedError `skipped` where the program says that it does not have the case."""
    line = _line_with(text, benchmark.program.absences)
    if line:
        raise CaseEndedError("skipped", line, text)


def _checked(
    pairs: Sequence[tuple[str, float]], metrics: Sequence[str], zero: set[str], text: str
) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = {metric: [] for metric in metrics}
    for metric, value in pairs:
        number = sane(value, may_be_zero=metric in zero)
        if number is None:
            raise CaseEndedError("garbled", f"garbled output: {metric} is {value}", text)
        if metric in found:
            found[metric].append(number)
    return found


def parser_from(source: str) -> Parse:
    """The function `parse` of a parser's source."""
    room: dict[str, object] = {"__name__": "parser_of_a_benchmark"}
    # A parser that prints would disturb the agent's own log.
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, "parser", "exec"), room)  # noqa: S102 (the agent's own file)
    parse = room["parse"]
    assert callable(parse)
    return parse


def _parser_of(benchmark: Benchmark) -> Parse | None:
    name = benchmark.program.parser
    return _compiled(dict(benchmark.files)[name].decode("utf-8")) if name else None


_compiled = functools.lru_cache(parser_from)


def _line_with(text: str, words: Sequence[str]) -> str:
    """The first line that holds one of `words`, whatever their case."""
    for line in text.split("\n"):
        if any(word.lower() in line.lower() for word in words):
            return line.strip(" #\t")[:300]
    return ""


_LONGEST_REASON = 500
_LARGEST_COUNTERS = 1024**2


@dataclass
class Runs:
    """The processes of one case, and what they have given so far. `counted` is the command of a single run."""

    benchmark: Benchmark
    planned: PlannedCase
    argv: list[str]
    counted: list[str]
    processes: int
    executor: Executor
    disk_bytes: int
    directories: tuple[Path, ...]
    surroundings: Surroundings
    values: dict[str, list[float]] = field(default_factory=dict)
    samples: list[Mapping[str, Any]] = field(default_factory=list)
    evidence: str = ""

    def measure(self) -> None:
        """Run all processes; raises CaseEndedError unless each metric has exactly the values that were planned."""
        deadline = time.monotonic() + self.planned.timeout_seconds
        metrics = self.planned.metrics
        self.values = {metric: [] for metric in metrics}
        for run in range(self.processes):
            before = self._sample()
            done = self._execute(self.argv, deadline)
            self.samples.append({"run": run, "before": before, "after": self._sample()})
            self.evidence = done.evidence
            found = values_in(self.benchmark, done.text, self.planned.case, metrics)
            if self.processes > 1:
                self._require(found, 1)
            for metric in metrics:
                self.values[metric] += found[metric]
        self._require(self.values, self.planned.runs)

    def counters(self) -> Mapping[str, float]:
        """What `perf stat` counts in one more process; nothing where it cannot, for that spoils no measurement."""
        perf = find_program("perf", self.surroundings) if self.surroundings.with_counters else None
        if perf is None:
            return {}
        output = self.executor.control / "counters"
        try:
            # Neither does perf write through what a run before has left there.
            output.unlink(missing_ok=True)
            self._execute(below_perf(perf, self.counted, output), time.monotonic() + self.planned.timeout_seconds)
            text = read_strange(output.parent, output.name, _LARGEST_COUNTERS)
            counted, missing = read_counters(text.decode("utf-8", errors="replace"))
        except StuckError:
            raise
        except (CaseEndedError, InfrastructureError, OSError) as error:
            self.surroundings.log.warning("no-counters", case=self.planned.case, reason=str(error)[:_LONGEST_REASON])
            return {}
        if missing:
            self.surroundings.log.info("events-not-counted", case=self.planned.case, events=",".join(missing))
        return counted

    def _execute(self, argv: list[str], deadline: float) -> Execution:
        limits = Limits(
            seconds=max(0.0, deadline - time.monotonic()), disk_bytes=self.disk_bytes, directories=self.directories
        )
        try:
            return self.executor.execute(argv, limits)
        except StuckError:
            raise
        except CaseEndedError as ended:
            if ended.outcome == "timeout":
                reason = f"ran longer than {self.planned.timeout_seconds} s"
                raise CaseEndedError("timeout", reason, ended.evidence) from ended
            if ended.outcome == "failed":
                # A program that does not have the case at all says so in its own way.
                require_presence(self.benchmark, ended.evidence)
            raise

    def _require(self, found: Mapping[str, list[float]], count: int) -> None:
        problem = count_problem(found, self.planned.metrics, count)
        if problem:
            raise CaseEndedError("garbled", problem, self.evidence)

    def _sample(self) -> Mapping[str, Any]:
        try:
            return dict(self.surroundings.sample())
        except OSError as error:
            self.surroundings.log.warning("no-sample", reason=str(error))
            return {}
