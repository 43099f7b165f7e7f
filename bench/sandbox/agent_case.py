"""The agent's part of `bench.sandbox.agent`: one case, with a lease to renew, on CPUs of its own. Prints when it ran.

python -m bench.sandbox.agent_case STATE SERVER TOKEN_FILE HOUSEKEEPING MEASURED RUNS
"""

import json
import sys
import threading
import time
from pathlib import Path

from tidemark_agent.benchmarks.bundle import find_benchmark
from tidemark_agent.cases.programs import Surroundings
from tidemark_agent.cases.runner import CaseRunner
from tidemark_agent.log import Log
from tidemark_agent.prepare import Sampler, cpu_set
from tidemark_agent.prepare.model import AgentCpus, Layout
from tidemark_agent.probe import CoreKind, probe_system
from tidemark_agent.wire.assignment import PlannedCase
from tidemark_agent.wire.client import Client, Lease

_LEASE_SECONDS = 60.0


def main(arguments: list[str]) -> int:
    state, server, token_file, housekeeping, measured, runs = arguments
    probe_system(Path("/"))
    AgentCpus().confine(Layout(cpu_set(housekeeping), cpu_set(measured)))
    stop, log = threading.Event(), Log()
    client = Client(server=server, token=Path(token_file).read_text, agent="bench", log=log, stop=stop)
    runner = CaseRunner(
        Surroundings(
            state=Path(state),
            programs={},
            modules=None,
            core_types=(),
            log=log,
            stop=stop,
            sample=Sampler(cpus=measured).sample,
        )
    )
    core = CoreKind("all", measured)
    runner.run(_planned(2), core)
    with Lease(client, "session-1-1", seconds=_LEASE_SECONDS, stop=stop, log=log):
        _mark("begun")
        result = runner.run(_planned(int(runs)), core)
        _mark("ended", outcome=result.outcome, reason=result.reason, values=len(result.values.get("time", ())))
    return int(result.outcome != "measured")


def _planned(runs: int) -> PlannedCase:
    benchmark = find_benchmark("mm-basic")
    return PlannedCase(benchmark.name, benchmark.version, "copy", runs, 1, 600, ("time",))


def _mark(word: str, **more: object) -> None:
    """Tell the one who measures, and wait until it has looked."""
    print(json.dumps({"mark": word, "at": time.monotonic(), **more}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
