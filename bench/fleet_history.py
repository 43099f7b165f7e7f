"""A fleet of machines and 300 revisions of a branch through the real database, and what is told about them.

    python -m bench.fleet_history [--seed 1] [--revisions 300] [--machines 6] [--changes 12] [--maintenance 4]

Heads, suspects, confirmation, bisection and machine questions are the service's own; builders, machines and their
noise are simulated (bench/fleet_history_levels.py). Prints each true change with what was told of it, and the machine
time that was spent; fails where fewer than 10 of 12 changes are found at the right first-parent revision (or the right
gap between revisions that can be measured), a maintenance step is told as code, or more than one finding is false.
"""

import subprocess
import sys
import tempfile

from bench.fleet_history_options import options
from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> None:
    options(sys.argv[1:], __doc__)
    command = [sys.executable, "-m", "bench.scratch_database", "bench.fleet_history_run", *sys.argv[1:]]
    with servers() as environment, tempfile.TemporaryDirectory() as state:
        # The mirror and the artifacts are the bench's own.
        own = {**environment, "TIDEMARK_STATE_DIR": state}
        sys.exit(subprocess.run(command, cwd=ROOT, env=own, check=False).returncode)


if __name__ == "__main__":
    main()
