"""What every page costs on a site of five years, and what the large pictures cost Chromium, beside their bars.

python -m bench.dashboard [--values 0.5] [--clients 8] [--requests 20] [--only PART] [--no-pages] [--no-pictures]: on
a database of its own, through the web server as it stands in production, each page is asked by one client and by
several; queries and uncompressed weight are counted in this process. The pictures are those of /gallery/: a timeline
of 5000 points and a heat map of 60 x 400 cells. Fails where a bar does not hold.
"""

import subprocess
import sys

from bench.dashboard.run import options
from bench.kit import ROOT
from bench.scratch_database import servers


def main() -> int:
    # Help, and what is wrong, before anything starts.
    options(sys.argv[1:], __doc__)
    with servers() as environment:
        command = [sys.executable, "-m", "bench.scratch_database", "bench.dashboard.asked", *sys.argv[1:]]
        return subprocess.run(command, cwd=ROOT, env=dict(environment), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
