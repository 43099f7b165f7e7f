"""Running a published case on this machine, and what it ran on."""

import json
import math
import statistics
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark, find_benchmark
from tidemark_agent.boot.evidence import running_system
from tidemark_agent.cases.programs import CaseResult, Surroundings
from tidemark_agent.cases.runner import CaseRunner
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import AgentError, InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.prepare import (
    JOURNAL_NAME,
    CannotMeasureError,
    Preparation,
    Sampler,
    Setting,
    common_cpus,
    disturbances,
)
from tidemark_agent.probe import CoreKind, Facts, probe_system
from tidemark_agent.reproduce.document import DocumentError, Published
from tidemark_agent.system.text import one_line
from tidemark_agent.version import agent_version
from tidemark_agent.wire.assignment import PlannedCase


@dataclass(frozen=True)
class Wanted:
    """What the user asked for. `runs` None means as many as were published."""

    runs: int | None
    any_version: bool
    prepare: bool
    modules: Path | None


@dataclass(frozen=True)
class Here:
    """What this machine gave. `shortcomings` are sentences: what was not as it is when Tidemark measures."""

    facts: Facts
    boot_id: str
    version: str
    results: tuple[CaseResult, ...]
    shortcomings: tuple[str, ...]


class NotTheSameError(AgentError):
    """The benchmark of this agent is not the published one, and nobody said that another will do."""


def planned_case(published: Published, wanted: Wanted, benchmark: Benchmark) -> PlannedCase:
    """What is to be run here; raises NotTheSameError, or InfrastructureError when this agent cannot run it at all."""
    if benchmark.version != published.version and not wanted.any_version:
        raise NotTheSameError(
            f"the figures are of {published.benchmark} in version {published.version[:12]}, this agent has "
            f"{benchmark.version[:12]}: another program may give other values. Use the agent of that time, or "
            "--any-version to run this one all the same"
        )
    if published.case not in benchmark.cases:
        raise InfrastructureError(f"this agent's {published.benchmark} has no case {published.case}")
    metrics = tuple(metric.name for metric in published.metrics if metric.name in benchmark.metrics)
    if not metrics:
        raise InfrastructureError(f"this agent's {published.benchmark} has none of the published metrics")
    runs = wanted.runs or published.runs
    if runs <= published.warmup:
        raise InfrastructureError(f"{runs} runs leave nothing after {published.warmup} of warm-up")
    return PlannedCase(
        benchmark=benchmark.name,
        version=benchmark.version,
        case=published.case,
        runs=runs,
        warmup=published.warmup,
        timeout_seconds=published.timeout_seconds * -(-runs // published.runs),
        metrics=metrics,
    )


def measure_here(
    published: Published,
    wanted: Wanted,
    config: AgentConfig,
    *,
    log: Log,
    stop: threading.Event,
    busy: Callable[[Path], Sequence[str]] = disturbances,
) -> Here:
    """Run the case on every kind of core. Settings are put back whatever happens."""
    benchmark = find_benchmark(published.benchmark)
    planned = planned_case(published, wanted, benchmark)
    config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    preparation = Preparation(config.prepare, journal=config.state_dir / JOURNAL_NAME, log=log, stop=stop)
    measuring = _Measuring(planned, benchmark, preparation, wanted.prepare)
    if benchmark.version != published.version:
        measuring.say(f"another version of the benchmark: {benchmark.version[:12]}, not {published.version[:12]}")
    if not wanted.prepare:
        measuring.say("not prepared: --no-prepare was given")
    measuring.say(*(f"disturbed: {reason}" for reason in busy(Path("/"))))
    facts = probe_system(Path("/"))
    try:
        cores = measuring.prepared(facts.core_types)
        surroundings = Surroundings(
            state=config.state_dir,
            programs=config.programs,
            pins=config.pins,
            modules=wanted.modules,
            core_types=cores,
            log=log,
            stop=stop,
            sample=Sampler().sample,
        )
        results = tuple(measuring.run(CaseRunner(surroundings), core) for core in cores)
    finally:
        measuring.put_back()
    return Here(
        facts=facts,
        boot_id=running_system().boot_id,
        version=benchmark.version,
        results=results,
        shortcomings=tuple(measuring.shortcomings),
    )


@dataclass
class _Measuring:
    """One case on this machine, and each once what was not as it should be, in the order in which it was found."""

    planned: PlannedCase
    benchmark: Benchmark
    preparation: Preparation
    prepare: bool
    shortcomings: dict[str, None] = field(default_factory=dict)

    def say(self, *sentences: str) -> None:
        self.shortcomings.update(dict.fromkeys(sentences))

    def prepared(self, cores: tuple[CoreKind, ...]) -> tuple[CoreKind, ...]:
        """The kinds of cores with the CPUs to measure on: without preparation all that they have."""
        if not self.prepare:
            return cores
        try:
            self.preparation.apply()
            measured = self.preparation.measured_cpus()
        except CannotMeasureError as error:
            self.say(f"not prepared: {error}")
            return cores
        kept = tuple(replace(core, cpus=common_cpus(core.cpus, measured)) for core in cores)
        return tuple(core for core in kept if core.cpus)

    def run(self, runner: CaseRunner, core: CoreKind) -> CaseResult:
        result = runner.run(self.planned, core, self._settled)
        self._verify()
        return result

    @contextmanager
    def _settled(self, settings: Mapping[str, Any]) -> Iterator[tuple[Setting, ...]]:
        with ExitStack() as stack:
            applied: tuple[Setting, ...] = ()
            if self.prepare and settings:
                try:
                    applied = stack.enter_context(self.preparation.case(settings))
                except CannotMeasureError as error:
                    self.say(f"without the settings of the case: {error}")
            elif settings:
                self.say(f"without the settings of the case: {', '.join(sorted(settings))}")
            yield applied

    def put_back(self) -> None:
        if self.prepare:
            self.say(*(f"not put back: {problem}" for problem in self.preparation.restore()))

    def _verify(self) -> None:
        if not self.prepare:
            return
        try:
            self.say(*(f"a setting did not stay: {change}" for change in self.preparation.verify()))
        except CannotMeasureError as error:
            self.say(f"a setting did not stay: {error}")


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
