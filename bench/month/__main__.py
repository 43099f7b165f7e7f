"""A month of a lab of 20 machines in minutes: what of memory, connections, files and rows is more at its end.

    make bench-month ARGS="--days 30"

docs/operations/scale.md tells what a day has and how it goes by. The stack is one of its own, and is removed at the
end; --keep leaves its files. The exit code is 1 where something has grown, or is there that should be gone.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.chaos.stage import AUTHOR, BUILDER, PLAIN_FILE, Stage, staged
from bench.chaos.study import NAME, UARCHS
from bench.kit import ROOT
from bench.month.verdict import FEWEST_DAYS, DayFigures, days_table, judge
from bench.replay.report import expected_table
from demo.processes import interrupt_once

MACHINES = 20
_SETTINGS = {
    "TIDEMARK_NOISE_HOURS": "24",
    "TIDEMARK_ARTIFACT_DAYS": "7",
    "TIDEMARK_KEEP_SAMPLES_MONTHS": "1",
    "TIDEMARK_KEEP_CONDITIONS_MONTHS": "1",
    "TIDEMARK_KEEP_TRANSITIONS_MONTHS": "1",
    "TIDEMARK_KEEP_LOGS_MONTHS": "1",
}


def main() -> int:
    options = _parser().parse_args()
    interrupt_once()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    stage = lab(options.seed)
    with staged(stage, keep=options.keep):
        say(f"the site stands: {MACHINES} machines")
        # It needs Django, which needs the stack.
        days: Any = importlib.import_module("bench.month.days")
        month = days.Month(stage, say)
        try:
            month.play(options.days)
        finally:
            # Of those that there were, where somebody ends it sooner.
            wrong = _tell(month.days)
    return 1 if wrong else 0


def _tell(days: Sequence[DayFigures]) -> list[str]:
    """Print what was seen, and return what was wrong."""
    if days:
        print(f"\n{days_table(days)}\n")
    if len(days) < FEWEST_DAYS:
        print(f"month: no verdict, which takes {FEWEST_DAYS} days")
        return []
    lines = judge(days)
    wrong = [line.what for line in lines if not line.right]
    print(f"{expected_table(lines)}\n")
    print(f"month: FAIL: {', '.join(wrong)}" if wrong else "month: nothing grows, nothing is left over", flush=True)
    return wrong


def lab(seed: int) -> Stage:
    names = [f"{uarch}-{number}" for number in range(1, MACHINES) for uarch in UARCHS]
    machines = tuple(names[:MACHINES])
    canary = f'\n[canary]\ntree = "{NAME}"\nmachine = "{machines[0]}"\nfile = "{PLAIN_FILE}"\nto = "{AUTHOR}"\n'
    return Stage(seed, ROOT / ".local" / "month", crews=((BUILDER,), machines), more=_SETTINGS, sections=canary)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.month", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the stack's files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
