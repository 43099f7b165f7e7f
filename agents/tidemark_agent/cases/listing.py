"""`tidemark-agent cases`: which benchmarks and cases this machine can run, and why not the others. Nothing is run."""

import argparse
import json
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.benchmarks import Benchmark, benchmark_names, find_benchmark
from tidemark_agent.cases.description import Case
from tidemark_agent.cases.ended import CaseEndedError
from tidemark_agent.cases.model import Surroundings
from tidemark_agent.cases.needs import disk_problem, unmet
from tidemark_agent.cases.programs import make_ready, missing_compiler
from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, read_config
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind, probe_system


@dataclass(frozen=True)
class Listed:
    """One case on one core type; `problem` says why it cannot be run here, or is empty."""

    benchmark: str
    version: str
    case: str
    core_type: str
    problem: str


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="agent.toml, which names external programs")
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def run(options: argparse.Namespace) -> int:
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
