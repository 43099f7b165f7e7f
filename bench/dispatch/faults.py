"""The fault matrix over and over, each time with the faults at other moments.

python -m bench.dispatch.faults [--rounds 5] [--seed 1]: prints the matrix of each round, and fails if a cell is wrong.
"""

import argparse
import os
import subprocess
import sys

from bench.kit import ROOT

_TEST = "tests/jenkins/test_fault_matrix.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    failed = []
    for seed in range(options.seed, options.seed + options.rounds):
        command = [sys.executable, "-m", "pytest", _TEST, "-q", "-n", "0", "-p", "no:cacheprovider"]
        environment = {**os.environ, "TIDEMARK_FAULT_SEED": str(seed)}
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(seed)
    if failed:
        sys.exit(f"wrong with seed {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
