"""What can be chosen of the simulated fleet."""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from bench.kit import ROOT
from bench.scratch_database import servers


@dataclass(frozen=True)
class Options:
    seed: int = 1
    revisions: int = 300
    machines: int = 6
    changes: int = 12
    maintenance: int = 4
    benchmarks: int = 8
    noise_hours: float = 24.0


def options(arguments: Sequence[str], description: str | None = None) -> Options:
    """Exits with help, or with what is wrong, as argparse does."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Options()
    for name in ("seed", "revisions", "machines", "changes", "maintenance", "benchmarks"):
        parser.add_argument(f"--{name}", type=int, default=getattr(usual, name))
    parser.add_argument("--noise-hours", type=float, default=usual.noise_hours, help="0: no A/A trials")
    found = parser.parse_args(arguments)
    return Options(
        found.seed,
        found.revisions,
        found.machines,
        found.changes,
        found.maintenance,
        found.benchmarks,
        found.noise_hours,
    )


# A fleet of machines and 300 revisions of a branch through the real database, and what is told about them.
#
#     python -m bench.fleet_history [--seed 1] [--revisions 300] [--machines 6] [--changes 12] [--maintenance 4]
#
# Heads, suspects, confirmation, bisection and machine questions are the service's own; builders, machines and their
# noise are simulated (demo/lab/history/truth.py). Prints each true change with what was told of it, and the machine
# time that was spent; fails where fewer than 10 of 12 changes are found at the right first-parent revision (or the
# right gap between revisions that can be measured), a maintenance step is told as code, or more than one finding is
# false.


def main() -> None:
    options(sys.argv[1:], __doc__)
    command = [sys.executable, "-m", "bench.scratch_database", "bench.history.run", *sys.argv[1:]]
    with servers() as environment, tempfile.TemporaryDirectory() as state:
        # The mirror and the artifacts are the bench's own.
        own = {**environment, "TIDEMARK_STATE_DIR": state}
        sys.exit(subprocess.run(command, cwd=ROOT, env=own, check=False).returncode)


if __name__ == "__main__":
    main()
