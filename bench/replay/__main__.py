"""The founding cases, measured again by a simulated fleet through the real API: does each end as its thread read it?

    make bench-replay ARGS="--rates 200"   make bench-replay ARGS="--faults 30"
    python -m bench.replay [--cases FILE] [--seed 1] [--noise 20] [--spread 0.005] [--rates N] [--no-cases] [--quiet]

Samples are drawn from the published means and spreads, 7 boots a side of 3 runs (a warm-up before); nothing of the
published data is kept here. Where no spread was published, --spread is taken between boots and between the runs of one.
Before, so many nights without work pass (--noise): A/A trials tell how noisy each cell is. --rates plays so many series
that change nothing, and as many with the published effect. With --faults N it is played on the whole local stack while
its processes are killed (bench/replay/faults.py).
"""

import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> None:
    if any(word.startswith("--faults") for word in sys.argv[1:]):
        command = [sys.executable, "-m", "bench.replay.faults", *sys.argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
    with servers() as environment:
        command = [sys.executable, "-m", "bench.scratch_database", "bench.replay.run", *sys.argv[1:]]
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()
