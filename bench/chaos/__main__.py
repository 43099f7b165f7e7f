"""The whole system under load while each of its parts is killed, frozen, restarted, filled or cut off at random.

    make chaos ARGS="--minutes 20 --seed 1"

Then what was put in is compared with what is there (docs/operations/chaos.md tells how to read the tables). The stack
is one of its own, and is removed at the end; --keep leaves its files. --only takes those strikes whose names hold the
word, such as `frozen` or `redis`.
"""

import argparse
import importlib
import sys
import time
from typing import Any

from bench.chaos.stage import Stage, staged
from bench.replay.report import expected_table
from demo.processes import interrupt_once


def main() -> int:
    options = _parser().parse_args()
    interrupt_once()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", flush=True)

    stage = Stage(options.seed)
    with staged(stage, keep=options.keep):
        say("the site stands")
        # They need Django, which needs the stack.
        run: Any = importlib.import_module("bench.chaos.run")
        audit: Any = importlib.import_module("bench.chaos.audit")
        told = run.play(stage, minutes=options.minutes, only=options.only, say=say)
        lines = audit.audited(stage, told)
    print(f"\nseed {options.seed}, {options.minutes:g} minutes, {len(told.struck)} strikes\n")
    print(run.strikes_table(told.struck))
    if told.left_out:
        print(f"left out, for there was nothing to be struck: {', '.join(told.left_out)}")
    print(f"\n{expected_table(lines)}\n")
    wrong = [line.what for line in lines if not line.right]
    print(f"chaos: FAIL: {', '.join(wrong)}" if wrong else "chaos: nothing was lost, doubled or stuck")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=20.0, help="of strikes; what is under way then ends after it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="strikes whose names hold this")
    parser.add_argument("--keep", action="store_true", help="leave the stack's files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
