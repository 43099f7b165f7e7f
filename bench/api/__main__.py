"""What pages and answers cost on a large site, beside their bars.

python -m bench.api [--values 0.5 5 50] [--clients 8] [--requests 5] [--only PART]: fills a database of its own step by
step, and asks after each step every page and every answer, in this process and through the web server. With --peers
as the first word (and --values 20000: that many, not millions) the same boots are stored by SQUAD and LNT beside it;
with --fuzz the description of the API is held against what it answers.
"""

import subprocess
import sys

from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> int:
    with servers() as environment:
        words = ["bench.api.run", *sys.argv[1:]]
        if sys.argv[1:2] in (["--peers"], ["--fuzz"]):
            words = [f"bench.api.{sys.argv[1].removeprefix('--')}", *sys.argv[2:]]
        command = [sys.executable, "-m", "bench.scratch_database", *words]
        return subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
