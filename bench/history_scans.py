"""What requests and sweeps cost at one year of history and at ten: nothing but what is open or shown may be read.

    python -m bench.history_scans [--year 1000] [--rounds 7] [--all]

A year has as many series as `--year` says, ten times as many mails and about thirty times as many boots. Fails where
one of them reads more than twice as many rows at ten years as at one, beyond some hundreds. Times stand beside them for
people: a host that does other things must not fail it.
"""

import argparse
import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> None:
    options(sys.argv[1:])
    command = [sys.executable, "-m", "bench.scratch_database", "bench.history_scans_run", *sys.argv[1:]]
    with servers() as environment:
        sys.exit(subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode)


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--year", type=int, default=1000, help="series of one year")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is timed")
    parser.add_argument("--all", action="store_true", help="print all of them, not only the dearest")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
