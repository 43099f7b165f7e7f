"""How often the base of a series is found, on real kernel history, for series whose true base is known.

python -m bench.bases [--series N] [--seed N]: the history is every linux-source-6.1 that Debian serves, one commit
each, and two branches beside it. A quarter of the series each has a base-commit, only index lines, contexts that a
local patch moved, or only words in the subject. The first run downloads some 800 MB and takes minutes.
"""

import argparse
import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--seed", type=int, default=6)
    chosen = parser.parse_args()
    with servers() as environment:
        words = ["-m", "bench.scratch_database", "bench.archive.bases", str(chosen.series), str(chosen.seed)]
        return subprocess.run([sys.executable, *words], env=dict(environment), cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
