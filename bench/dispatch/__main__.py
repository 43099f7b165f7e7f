"""What dispatching costs, beside its bars: the controller's share, the rounds, and the scheduler's decision.

python -m bench.dispatch [SESSIONS]: prints each figure with its ratio to its bar, and fails if one does not hold.
"""

import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> None:
    failed = 0
    with servers() as environment:
        for module, arguments in (("bench.dispatch.scheduler", []), ("bench.dispatch.jenkins", sys.argv[1:])):
            command = [sys.executable, "-m", "bench.scratch_database", module, *arguments]
            failed += subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
