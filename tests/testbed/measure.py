"""Runs in a guest: `python3 measure.py AGENT.pyz STATE PATTERN...` measures matching cases with the agent's runner.

A pattern is for `fnmatch` over BENCHMARK/CASE. Says `facts: ` and what the agent's probe found, then `measured: ` and
a JSON object for each case, as CaseResult has it.
"""

import dataclasses
import fnmatch
import json
import sys
import threading
from pathlib import Path
from typing import Any

AGENT, STATE = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, AGENT)

from tidemark_agent.benchmarks.bundle import Benchmark, benchmark_names, find_benchmark  # noqa: E402 (as above)
from tidemark_agent.cases.programs import Surroundings  # noqa: E402 (as above)
from tidemark_agent.cases.runner import CaseRunner  # noqa: E402 (as above)
from tidemark_agent.log import Log  # noqa: E402 (as above)
from tidemark_agent.prepare import Preparation, PrepareConfig  # noqa: E402 (as above)
from tidemark_agent.probe import CoreKind, probe_system  # noqa: E402 (as above)
from tidemark_agent.wire.assignment import PlannedCase  # noqa: E402 (from the agent's file)

RUNS = 3


def planned(benchmark: Benchmark, case: str) -> PlannedCase:
    return PlannedCase(
        benchmark=benchmark.name,
        version=benchmark.version,
        case=case,
        runs=RUNS,
        warmup=1,
        timeout_seconds=120,
        metrics=tuple(benchmark.metrics),
    )


def say(word: str, what: Any) -> None:
    sys.stdout.write(f"{word}: {json.dumps(dataclasses.asdict(what))}\n")
    sys.stdout.flush()


def main(patterns: list[str]) -> None:
    say("facts", probe_system(Path("/")))
    log, stop, core = Log(), threading.Event(), CoreKind("all", "0")
    modules = STATE / "tidemark"
    runner = CaseRunner(Surroundings(STATE, programs={}, modules=modules, core_types=(core,), log=log, stop=stop))
    preparation = Preparation(PrepareConfig(), journal=STATE / "settings", log=log, stop=stop)
    for benchmark in map(find_benchmark, benchmark_names()):
        for case in benchmark.cases:
            if any(fnmatch.fnmatch(f"{benchmark.name}/{case}", pattern) for pattern in patterns):
                with preparation.case(benchmark.cases[case].settings):
                    result = runner.run(planned(benchmark, case), core)
                say("measured", result)


if __name__ == "__main__":
    main(sys.argv[3:])
