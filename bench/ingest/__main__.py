"""What storing the results of boots costs, beside its limits.

python -m bench.ingest [--values 100000] [--profile]: prints queries, CPU seconds and bytes of typical and of big boots,
beside a plain COPY of the same values; fails where a limit does not hold.
"""

import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> int:
    with servers() as environment:
        command = [sys.executable, "-m", "bench.scratch_database", "bench.ingest.uploads", *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
