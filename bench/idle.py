"""What the service holds of memory while it has nothing to do, beside its bar.

python -m bench.idle [--seconds 60]: starts the local stack of this directory if none runs (TIDEMARK_LOCAL names
another), waits so long, and prints the proportional memory of each process: pages that several share count once in all.
PostgreSQL is not counted. Fails beyond the bar.
"""

import argparse
import sys
import time
from pathlib import Path

from bench.processes import shared_mb
from bench.table import table
from scripts.stack import local_directory, stack_down, stack_up
from scripts.stack.supervisor import marked_processes

ROOT = Path(__file__).resolve().parent.parent
MOST_MB = 500
_KINDS = ("supervisord", "redis-server", "gunicorn", " beat ", " worker ")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.idle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the service is left alone")
    options = parser.parse_args()
    stack = stack_up(ROOT, services=True, durable=False)
    try:
        time.sleep(options.seconds)
        found = sorted(_measured(local_directory(ROOT)), key=lambda row: (row[0], -row[1]))
    finally:
        if stack.fresh:
            stack_down(ROOT)
    together = sum(size for _, size in found)
    rows = [[kind, f"{size:.0f}"] for kind, size in [*found, ("together", together)]]
    print(table(["process", "MB"], rows))
    print(f"bar: {MOST_MB} MB, {'held' if together <= MOST_MB else 'MISSED'}")
    return 0 if together <= MOST_MB else 1


def _measured(local: Path) -> list[tuple[str, float]]:
    found = []
    for pid in marked_processes(local):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        kind = next((kind for kind in _KINDS if kind in words), "")
        if kind:
            found.append((kind.strip(), shared_mb(pid)))
    return found


if __name__ == "__main__":
    sys.exit(main())
