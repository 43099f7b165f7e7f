"""The processes of one case, one after another, and the values that they give."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.benchmarks import Benchmark
from tidemark_agent.cases.counters import below_perf, read_counters
from tidemark_agent.cases.ended import CaseEndedError, StuckError
from tidemark_agent.cases.execution import Execution, Executor, Limits
from tidemark_agent.cases.model import Surroundings
from tidemark_agent.cases.output import count_problem
from tidemark_agent.cases.parsers import require_presence, values_in
from tidemark_agent.cases.programs import find_program
from tidemark_agent.disk import read_strange
from tidemark_agent.errors import InfrastructureError

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
