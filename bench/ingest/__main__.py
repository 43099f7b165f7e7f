"""What storing the results of boots costs, beside its limits.

python -m bench.ingest [--values 100000] [--profile]: prints queries, CPU seconds and bytes of typical and of big boots,
beside a plain COPY of the same values; fails where a limit does not hold. With --crowd as the first word many agents
send at once while the processes that answer are killed; with --growth it tells what ten years come to.
"""

import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> int:
    with servers() as environment:
        words = ["bench.ingest.uploads", *sys.argv[1:]]
        if sys.argv[1:2] == ["--crowd"]:
            words = ["bench.ingest.crowd", *sys.argv[2:]]
        if sys.argv[1:2] == ["--growth"]:
            words = ["bench.ingest.growth", *sys.argv[2:]]
        command = [sys.executable, "-m", "bench.scratch_database", *words]
        return subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
