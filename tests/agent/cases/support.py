"""Benchmarks made up by tests, run by the agent's own runner with real processes."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import find_benchmark
from tidemark_agent.cases.programs import CaseResult, Surroundings
from tidemark_agent.cases.runner import CaseRunner
from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind
from tidemark_agent.wire.assignment import PlannedCase

CORE = CoreKind("all", "0")
METRIC = '[[metrics]]\nname = "time"\ntitle = "Time"\nunit = "ns"\nbetter = "lower"\n'
HEAD = 'name = "made-up"\ntitle = "Made up"\n'
SCRIPT = '[program]\nkind = "script"\nfile = "program.py"\n'
CASE = '[[cases]]\nname = "one"\ntitle = "One"\nruns = 3\nwarmup = 1\n'


@dataclass
class Bench:
    """One benchmark in `root`, and what surrounds it."""

    root: Path
    programs: Mapping[str, Path] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    sample: Callable[[], Mapping[str, Any]] = dict
    with_counters: bool = False
    system: Path = Path("/")

    def write(self, toml: str, **files: str) -> None:
        """Lay the benchmark `made-up` out; `program_py="..."` is its file program.py."""
        folder = self.root / "benchmarks" / "made-up"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "benchmark.toml").write_text(toml, encoding="utf-8")
        for name, text in files.items():
            (folder / name.replace("_py", ".py")).write_text(text, encoding="utf-8")

    def write_script(self, source: str, case: str = CASE) -> None:
        self.write(HEAD + SCRIPT + case + METRIC, program_py=source)

    def planned(self, case: str = "one", **changes: Any) -> PlannedCase:
        benchmark = find_benchmark("made-up", self.root / "benchmarks")
        about = benchmark.cases[case]
        fields: dict[str, Any] = {
            "benchmark": "made-up",
            "version": benchmark.version,
            "case": case,
            "runs": about.runs,
            "warmup": about.warmup,
            "timeout_seconds": about.timeout_seconds,
            "metrics": tuple(benchmark.metrics),
        }
        return PlannedCase(**{**fields, **changes})

    @property
    def state(self) -> Path:
        return self.root / "state"

    def runner(self) -> CaseRunner:
        surroundings = Surroundings(
            state=self.state,
            programs=self.programs,
            modules=None,
            core_types=(CORE,),
            log=Log(),
            stop=self.stop,
            sample=self.sample,
            with_counters=self.with_counters,
            pins=self.pins,
            root=self.system,
        )
        return CaseRunner(surroundings, self.root / "benchmarks")

    def run(self, planned: PlannedCase | None = None, core: CoreKind = CORE) -> CaseResult:
        return self.runner().run(planned or self.planned(), core)


def prints(*values: object, metric: str = "time", case: str = "one") -> str:
    """Source of a script that prints these values as our own protocol has them."""
    lines = [f'print(json.dumps({{"case": {case!r}, "metric": {metric!r}, "value": {value!r}}}))' for value in values]
    return "\n".join(["import json", "nan, inf = float('nan'), float('inf')", *lines, ""])
