"""What detection costs as history grows: a new point of a long timeline beside a short one, and 2000 cells judged.

    python -m bench.detection [--points 40] [--cells 2000]

On PostgreSQL, through the service's own code. Fails where a new point on timelines of 5000 points costs more than
20 % above one of 500 points (or less below), or judging and storing takes 3 s.
"""

import argparse
import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> None:
    options(sys.argv[1:])
    command = [sys.executable, "-m", "bench.scratch_database", "bench.detection_run", *sys.argv[1:]]
    with servers() as environment:
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=40, help="new heads on each branch that are timed")
    parser.add_argument("--cells", type=int, default=2000, help="cells of the trial that is judged")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
