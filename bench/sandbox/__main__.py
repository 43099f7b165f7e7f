"""What builds that try to escape, or to take the host down, come to: `make bench-sandbox`.

Every line is a real build by the agent's KernelBuilder in its sandbox, of a tree whose Makefile does that instead of
compiling. Exit status 1 when one of them got what it wanted.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

from bench.sandbox.host import FLOODS, SECRET, Flood, Host, hostile_host, left_over
from bench.table import table

LIMITS = {"memory_mb": 512, "processes": 150, "disk_mb": 64, "log_mb": 1, "cpu_seconds": 2}
_PRELUDE = "import os, sys, time\n"
Row = tuple[str, str, str]


def attempts(host: Host, *, series: bool = True) -> list[Row]:
    """What was tried, how it ended, and whether that is as it must be."""
    act = (Path(__file__).parent / "attempts.py").read_text(encoding="utf-8")
    outcome, log = host.build(act, series=series)
    lines = [line.partition("\t") for line in log.splitlines() if "\t" in line]
    # Whether something was written is seen from outside: below /tmp it may write, for that is its own.
    rows = [(name, said, "held" if _is_held(name, said) else "ESCAPED") for name, _, said in lines]
    if not rows:
        return [("attempts", f"{outcome.reason} {log[-300:]}", "NOT TRIED")]
    planted = [str(path) for path in host.places() if path.exists()]
    rows.append(("files on the host", ", ".join(planted) or "none is there", "ESCAPED" if planted else "held"))
    heard = ", ".join(host.heard)
    rows.append(("listeners of the host", heard or "heard nothing", "ESCAPED" if heard else "held"))
    stolen = SECRET in log
    rows.append(("token in the log", "is there" if stolen else "is not there", "ESCAPED" if stolen else "held"))
    return rows


def _is_held(name: str, said: str) -> bool:
    return said.startswith("refused") or name == "write to home"


def flooded(host: Host, flood: Flood) -> Row:
    """One build that takes too much: it must end, for that reason, soon, and leave nothing running."""
    started = time.monotonic()
    outcome, log = host.build(_PRELUDE + flood.script, limits=LIMITS, seconds=flood.seconds)
    seconds = time.monotonic() - started
    ended = f"{outcome.outcome} after {seconds:.1f} s: {outcome.reason}"
    trouble = [
        outcome.outcome != "failed" and "blames the host",
        not re.search(flood.reason, f"{outcome.reason} {log[-500:]}") and "for another reason",
        len(log) > LIMITS["log_mb"] * 2**20 and "log too long",
        bool(left_over("/build/src/act.py")) and "processes left",
        seconds > flood.seconds + 20 and "too late",
    ]
    return flood.name, ended, ", ".join(word for word in trouble if word) or "held"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, hostile_host(Path(folder)) as host:
        rows = attempts(host)
        wanted = sys.argv[1:]
        for one in (flood for flood in FLOODS if not wanted or any(word in flood.name for word in wanted)):
            rows.append(flooded(host, one))
            print(f"... {one.name}: {rows[-1][2]}", file=sys.stderr)
    print(table(("escape", "how it ended", ""), [(name, said[:90], verdict) for name, said, verdict in rows]))
    return 0 if all(verdict == "held" for _, _, verdict in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
