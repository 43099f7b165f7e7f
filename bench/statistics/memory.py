"""Peak memory of a search of a large fleet, measured in a process of its own.

python -m bench.statistics.memory [--timelines 5000] [--points 500]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.kit import ROOT
from server.stats.changepoints import fleet
from server.stats.changepoints.timeline import TimelineValues

MACHINES = 10


def timelines(count: int, points: int) -> list[TimelineValues]:
    """Noise of 1 % around a level, and in every tenth benchmark a step of 5 % on all machines."""
    generator = np.random.default_rng(4)
    revisions = np.arange(points)
    made = []
    for number in range(count):
        benchmark = number // MACHINES
        step = 0.05 * (benchmark % 10 == 0) * (revisions >= points // 2 + benchmark % 7)
        values = 100 * np.exp(generator.normal(0, 0.01, points) + step)
        machine = f"machine-{number % MACHINES}"
        made.append(
            TimelineValues(f"{machine}/{benchmark}", values, revisions, machine=machine, benchmark=str(benchmark))
        )
    return made


def measured(count: int, points: int) -> dict[str, float]:
    """Peak of this process in MB, and the seconds of the search."""
    fleet_of = timelines(count, points)
    started = time.perf_counter()
    found = fleet.resolve(fleet_of)
    spent = time.perf_counter() - started
    steps = sum(len(steps) for steps in found.steps)
    return {"memory_mb": _peak(), "seconds": spent, "steps": steps}


def _peak() -> float:
    """In MB. Not getrusage's figure: that begins with what the process that started this one had used."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found
    return int(found[1]) / 1024


def in_own_process(count: int = 5000, points: int = 500) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.statistics.memory", "--timelines", str(count), "--points", str(points)]
    one_core = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **one_core}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.statistics.memory", description="peak memory of a fleet's search"
    )
    parser.add_argument("--timelines", type=int, default=5000)
    parser.add_argument("--points", type=int, default=500)
    chosen = parser.parse_args(arguments)
    print(json.dumps(measured(chosen.timelines, chosen.points)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
