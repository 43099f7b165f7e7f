"""Measuring cases on this machine, and listing those that it can measure."""

import argparse
import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark, benchmark_names, find_benchmark
from tidemark_agent.benchmarks.description import Case, disk_problem, unmet
from tidemark_agent.cases.execution import EVIDENCE_BYTES, Executor, kept_directory, scratch_directory
from tidemark_agent.cases.programs import (
    CaseEndedError,
    CaseResult,
    Hashes,
    Places,
    Ready,
    StuckError,
    Surroundings,
    make_ready,
    missing_compiler,
    path_to_helpers,
)
from tidemark_agent.cases.runs import Runs
from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, read_config
from tidemark_agent.errors import AgentError, InfrastructureError, StoppedError, file_trouble
from tidemark_agent.log import Log
from tidemark_agent.prepare import Setting
from tidemark_agent.probe import CoreKind, probe_system
from tidemark_agent.system.text import last_bytes
from tidemark_agent.wire.assignment import PlannedCase

_MIB = 1024**2
# What a benchmark may write when it does not say how much it needs; the disk need not have that much free.
_DISK_MB = 256
_LONGEST_REASON = 500

Settle = Callable[[Mapping[str, Any]], AbstractContextManager[Sequence[Setting]]]


class CaseRunner:
    """Runs cases one after another. `benchmarks` is where they are looked for; None: among those the agent carries."""

    def __init__(self, surroundings: Surroundings, benchmarks: Traversable | None = None) -> None:
        self._surroundings = surroundings
        self._benchmarks = benchmarks
        self._hashes = Hashes()
        self._stuck = ""

    def run(self, case: PlannedCase, core_type: CoreKind, settle: Settle | None = None) -> CaseResult:
        """Run all of the case on `core_type`; whatever goes wrong is in the result, except StoppedError.

        `settle` makes the settings that the case asks for, while its program runs: not before it is known that the case
        can be run at all, for pools of huge pages take the memory that its needs are about.
        """
        if self._stuck:
            # It may hold locks, or spin on a CPU that is measured on.
            return _result(case, core_type, "infrastructure", f"not measured after {self._stuck}")
        try:
            return self._measured(case, core_type, settle or _settle_nothing)
        except StoppedError:
            raise
        except StuckError as ended:
            self._stuck = f"{case.benchmark}/{case.case}: {ended.reason}"
            return _result(case, core_type, ended.outcome, ended.reason, ended.evidence)
        except CaseEndedError as ended:
            return _result(case, core_type, ended.outcome, ended.reason, ended.evidence)
        except (AgentError, OSError) as error:
            reason = file_trouble(error) if isinstance(error, OSError) else str(error)
            return _result(case, core_type, "infrastructure", reason)
        except Exception as error:
            self._surroundings.log.exception("case-broke", benchmark=case.benchmark, case=case.case)
            return _result(case, core_type, "infrastructure", f"the agent failed: {error!r}")

    def _measured(self, planned: PlannedCase, core: CoreKind, settle: Settle) -> CaseResult:
        benchmark = wanted_benchmark(planned, self._benchmarks)
        problem = unmet(benchmark.needs_of(planned.case), core, self._surroundings.root)
        if problem:
            raise CaseEndedError("skipped", problem)
        with scratch_directory(self._surroundings.state, self._surroundings.root) as scratch:
            return self._run_in(scratch, benchmark, planned, core, settle)

    def _run_in(
        self, scratch: Path, benchmark: Benchmark, planned: PlannedCase, core: CoreKind, settle: Settle
    ) -> CaseResult:
        surroundings, case = self._surroundings, benchmark.cases[planned.case]
        disk_mb = int(case.needs.get("disk_mb", _DISK_MB))
        problem = disk_problem(disk_mb, scratch) if "disk_mb" in case.needs else ""
        if problem:
            raise CaseEndedError("skipped", problem)
        folder, work = scratch / "folder", scratch / "work"
        folder.mkdir()
        work.mkdir()
        ready = make_ready(benchmark, case, surroundings, folder)
        name = f"{benchmark.name}-{benchmark.version[:12]}"
        kept = kept_directory(surroundings.state, name, surroundings.root) if case.keeps else work
        places = Places(planned.case, planned.runs, core, work, folder, kept, ready.files)
        executor = Executor(
            scratch=work,
            control=scratch,
            cpus=core.cpus,
            root=surroundings.root,
            stop=surroundings.stop,
            environment={
                **path_to_helpers(case, ready, surroundings, scratch / "helpers"),
                **{key: places.fill(value) for key, value in case.environment.items()},
            },
            directory=ready.directory,
        )
        runs = Runs(
            benchmark=benchmark,
            planned=planned,
            argv=places.command(case, ready.words),
            counted=replace(places, runs=1).command(case, ready.words),
            processes=1 if case.is_one_process else planned.runs,
            executor=executor,
            disk_bytes=disk_mb * _MIB,
            directories=(scratch, kept) if case.keeps else (scratch,),
            surroundings=surroundings,
        )
        programs = self._recorded(ready)
        with settle(case.settings) as applied:
            runs.measure()
            counters = runs.counters()
        return CaseResult(
            **_names(planned, core),
            outcome="measured",
            warmup=planned.warmup,
            values={metric: tuple(values) for metric, values in runs.values.items()},
            evidence=runs.evidence,
            samples=tuple(runs.samples),
            counters=counters,
            settings=tuple(setting.as_json() for setting in applied),
            programs=programs,
        )

    def _recorded(self, ready: Ready) -> Mapping[str, str]:
        """The hash of each file that did not come with the agent, checked against what the operator pinned."""
        recorded = {name: self._hashes.of(path) for name, path in ready.files.items() if path.is_file()}
        for name, pinned in self._surroundings.pins.items():
            if name in recorded and recorded[name] != pinned:
                raise InfrastructureError(f"{name} has the SHA-256 {recorded[name]}, agent.toml pins {pinned}")
        return recorded


def wanted_benchmark(planned: PlannedCase, benchmarks: Traversable | None = None) -> Benchmark:
    """The benchmark in the version that is planned, with the case in it; raises InfrastructureError naming both."""
    benchmark = find_benchmark(planned.benchmark, benchmarks)
    if benchmark.version != planned.version:
        raise InfrastructureError(
            f"benchmark {planned.benchmark} is wanted in version {planned.version[:12]}, "
            f"this agent has {benchmark.version[:12]}"
        )
    if planned.case not in benchmark.cases:
        raise InfrastructureError(f"benchmark {planned.benchmark} has no case {planned.case}")
    if unknown := sorted(set(planned.metrics) - set(benchmark.metrics)):
        raise InfrastructureError(f"benchmark {planned.benchmark} has no metric {unknown[0]}")
    if not planned.metrics or not 0 <= planned.warmup < planned.runs:
        # Nothing would be missing in nothing, and count as measured.
        raise InfrastructureError(f"the plan wants no value of {planned.benchmark}/{planned.case}")
    return benchmark


def _settle_nothing(_settings: Mapping[str, Any]) -> AbstractContextManager[Sequence[Setting]]:
    return nullcontext(())


def _names(planned: PlannedCase, core: CoreKind) -> dict[str, Any]:
    return {
        "benchmark": planned.benchmark,
        "version": planned.version,
        "case": planned.case,
        "core_type": core.name,
    }


def _result(planned: PlannedCase, core: CoreKind, outcome: str, reason: str, evidence: str = "") -> CaseResult:
    return CaseResult(
        **_names(planned, core),
        outcome=outcome,
        reason=reason[:_LONGEST_REASON],
        evidence=last_bytes(evidence, EVIDENCE_BYTES),
    )


@dataclass(frozen=True)
class Listed:
    """One case on one core type; `problem` says why it cannot be run here, or is empty."""

    benchmark: str
    version: str
    case: str
    core_type: str
    problem: str


def add_case_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="agent.toml, which names external programs")
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def list_cases(options: argparse.Namespace) -> int:
    """Print the list; returns the exit status."""
    try:
        config = read_config(options.config) if options.config.exists() else None
    except ConfigError as error:
        print(error)
        return 1
    listed = list(listed_cases(config))
    if options.json:
        print(json.dumps([vars(item) for item in listed], indent=2))
        return 0
    for line in _lines(listed):
        print(line)
    return 0


def listed_cases(config: AgentConfig | None) -> Iterator[Listed]:
    """Every case of every benchmark on every core type of this machine."""
    core_types = probe_system(Path("/")).core_types
    with tempfile.TemporaryDirectory() as scratch:
        surroundings = Surroundings(
            state=config.state_dir if config else Path(scratch),
            programs=config.programs if config else {},
            pins=config.pins if config else {},
            modules=None,
            core_types=core_types,
            log=Log(),
            stop=threading.Event(),
        )
        for name in benchmark_names():
            benchmark = find_benchmark(name)
            for case in benchmark.cases.values():
                for core in core_types:
                    problem = why_not(benchmark, case, core, surroundings, Path(scratch))
                    yield Listed(name, benchmark.version, case.name, core.name, problem)


def why_not(benchmark: Benchmark, case: Case, core: CoreKind, surroundings: Surroundings, scratch: Path) -> str:
    """Why the case cannot be run here, as far as it can be told without running it; "" if nothing speaks against it."""
    # Cases work below the state directory, which may be on another disk than temporary files.
    disk = surroundings.state if surroundings.state.is_dir() else scratch
    problem = unmet(case.needs, core, surroundings.root) or disk_problem(int(case.needs.get("disk_mb", 0)), disk)
    if problem:
        return problem
    program = benchmark.program
    if program.kind == "compiled":
        return missing_compiler(benchmark, surroundings.state)
    if program.kind == "module":
        return "" if surroundings.modules else "runs where modules were built with the booted kernel"
    try:
        make_ready(benchmark, case, surroundings, scratch)
    except CaseEndedError as ended:
        return ended.reason
    return ""


def _lines(listed: list[Listed]) -> Iterator[str]:
    """By benchmark and reason, so that a long list can be read."""
    for name in sorted({item.benchmark for item in listed}):
        own = [item for item in listed if item.benchmark == name]
        yield f"{name} {own[0].version[:12]}"
        for problem in sorted({item.problem for item in own}):
            cases = [_label(item) for item in own if item.problem == problem]
            yield f"  {problem or 'can run'} ({len(cases)}): {', '.join(cases)}"


def _label(item: Listed) -> str:
    return item.case if item.core_type == "all" else f"{item.case}/{item.core_type}"
