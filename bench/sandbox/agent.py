"""What the agent costs while a case runs: CPU time, wake-ups on measured CPUs, memory, and its size on disk.

python -m bench.sandbox.agent [--runs 800] [--measured LAST_CPU]

A real case of mm-basic runs for about half a minute below the agent's own runner, while a lease is renewed; the agent
keeps to the other CPUs as it does in a session. With one CPU there are no others, and wake-ups there are not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.kit import ROOT
from bench.processes import Seen, family, look
from bench.table import table
from scripts.build_agent import build_agent
from tests.agent.fake_server import TOKEN, Lab, running_server

MOST_CPU_PERCENT = 0.5
MOST_MEMORY_MB = 40.0
MOST_SIZE_MB = 1.0
_PAUSE_SECONDS = 0.02
_PROGRAM_DEPTH = 3
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Cost:
    """What was measured: seconds of the case, and the agent's processes (itself, guard, launcher) over that time."""

    seconds: float
    agent: Seen
    all_kb: int
    cpu_seconds: float
    switches: int
    on_measured: int
    program_cpus: str
    size: int

    @property
    def cpu_percent(self) -> float:
        return 100 * self.cpu_seconds / self.seconds


def measured_cost(runs: int, measured: int) -> Cost:
    """Run the case below the agent and watch from outside. Raises CalledProcessError if it does not measure."""
    others = sorted(os.sched_getaffinity(0) - {measured}) or [measured]
    with tempfile.TemporaryDirectory() as scratch:
        size = _size(Path(scratch) / "agent.pyz")
        token = Path(scratch) / "token"
        token.write_text(TOKEN, encoding="ascii")
        lab = Lab(assignments={"session-1-1": {"kind": "session"}}, holders={"session-1-1": "bench"})
        with running_server(lab) as server:
            words = [scratch, server, str(token), ",".join(map(str, others)), str(measured), str(runs)]
            return _watched([sys.executable, "-m", "bench.sandbox.agent_case", *words], measured, size)


def _watched(command: Sequence[str], measured: int, size: int) -> Cost:
    path = f"{ROOT}:{ROOT / 'agents'}"
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as agent:
        assert agent.stdin
        assert agent.stdout
        seen: dict[int, Seen] = {}
        programs: dict[int, Seen] = {}
        begun = json.loads(agent.stdout.readline())
        look(agent.pid, seen)
        before = seen[agent.pid]
        before_cpu, before_switches = before.cpu_seconds, before.voluntary + before.involuntary
        # Where the agent itself was before the case does not count.
        before.cpus.clear()
        os.set_blocking(agent.stdout.fileno(), False)
        agent.stdin.write("\n")
        agent.stdin.flush()
        while not (line := agent.stdout.readline()) and agent.poll() is None:
            for pid, depth in list(family(agent.pid)):
                # The agent starts a guard, that a launcher, that the program.
                look(pid, seen if depth < _PROGRAM_DEPTH else programs)
            time.sleep(_PAUSE_SECONDS)
        ended = json.loads(line or '{"outcome": "died"}')
        look(agent.pid, seen)
        agent.communicate("\n")
    if ended["outcome"] != "measured":
        raise RuntimeError(f"the case was not measured: {ended}")
    ours = tuple(seen.values())
    return Cost(
        seconds=ended["at"] - begun["at"],
        agent=seen[agent.pid],
        all_kb=sum(one.peak_kb for one in ours),
        cpu_seconds=sum(one.cpu_seconds for one in ours) - before_cpu,
        switches=sum(one.voluntary + one.involuntary for one in ours) - before_switches,
        on_measured=sum(measured in one.cpus for one in ours),
        program_cpus="; ".join(sorted({one.allowed for one in programs.values()})),
        size=size,
    )


def _size(archive: Path) -> int:
    build_agent(archive)
    return archive.stat().st_size


def rows(cost: Cost) -> list[list[str]]:
    """The table's rows: what, measured, limit, how much of the limit."""
    memory = cost.agent.peak_kb / 1024
    size = cost.size / _MIB
    return [
        ["CPU time of agent, guard, launcher (%)", *_against(cost.cpu_percent, MOST_CPU_PERCENT)],
        ["of these seen on the measured CPU", str(cost.on_measured), "0", "pass" if not cost.on_measured else "FAIL"],
        ["peak memory of the agent (MB)", *_against(memory, MOST_MEMORY_MB)],
        ["the same with guard and launcher, shared pages counted thrice (MB)", f"{cost.all_kb / 1024:.1f}", "-", "-"],
        ["zipapp (MB)", *_against(size, MOST_SIZE_MB)],
        ["context switches a second", f"{cost.switches / cost.seconds:.1f}", "-", "-"],
        ["seconds of the case", f"{cost.seconds:.1f}", "-", "-"],
    ]


def _against(value: float, limit: float) -> list[str]:
    return [f"{value:.3f}", f"{limit:g}", f"{value / limit:.2f} {'pass' if value < limit else 'FAIL'}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sandbox.agent", description="what the agent costs while it measures"
    )
    parser.add_argument("--runs", type=int, default=800)
    parser.add_argument("--measured", type=int, default=max(os.sched_getaffinity(0)))
    chosen = parser.parse_args(arguments)
    cost = measured_cost(chosen.runs, chosen.measured)
    found = rows(cost)
    print(table(["", "measured", "limit", "of the limit"], found))
    print(f"agent on CPUs {cost.agent.allowed}, benchmark on {cost.program_cpus}")
    return int(any("FAIL" in cell for row in found for cell in row))


if __name__ == "__main__":
    sys.exit(main())
