"""The statistics from the command line: rows as JSON lines in, predictions as JSON lines out.

    python -m server.stats cpd [--online tasks.jsonl] < rows.jsonl > predictions.jsonl
    python -m server.stats ab < pairs.jsonl > predictions.jsonl

A row of `cpd` is a history (`id`, `values`, and what else is known of it), a row of `ab` two kernels in one cell (`id`,
`base` and `patched` as [boot][run], and the order of the boots). numpy and scipy suffice; the service is not needed.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from server.stats.rows import HISTORY, PAIR, TASK, Row, compared, predict, read_rows, written

NOT_WRITTEN, BAD_INPUT = 1, 2
STANDARD_OUTPUT = 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m server.stats", description="rows in, predictions out (JSON lines)")
    commands = parser.add_subparsers(dest="command", required=True)
    cpd = commands.add_parser("cpd", help="change points of histories")
    cpd.add_argument("--online", type=Path, metavar="FILE", help="also look at the prefixes that FILE names")
    commands.add_parser("ab", help="base against patched kernel")
    chosen = parser.parse_args(arguments)
    try:
        lines = _compared() if chosen.command == "ab" else _searched(chosen.online)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"server.stats: {error}\n")
        return BAD_INPUT
    # Written only when all is well: half of the predictions would look like all of them.
    try:
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"server.stats: the predictions could not be written whole: {error}\n")
        # What is left in the buffer would fail once more at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_OUTPUT)
        return NOT_WRITTEN
    return 0


def _compared() -> Sequence[str]:
    return written(compared(_distinct(list(read_rows("standard input", sys.stdin, PAIR)))))


def _searched(online: Path | None) -> Sequence[str]:
    rows = _distinct(list(read_rows("standard input", sys.stdin, HISTORY)))
    known = {row["id"] for row in rows}
    tasks = [] if online is None else [task for task in _tasks(online) if task["id"] in known]
    return written(predict(rows, tasks))


def _tasks(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as lines:
        return list(read_rows(path.name, lines, TASK))


def _distinct(rows: list[Row]) -> list[Row]:
    seen: set[str] = set()
    for row in rows:
        if row["id"] in seen:
            raise ValueError(f"standard input: two rows have the id {row['id']!r}")
        seen.add(row["id"])
    return rows


if __name__ == "__main__":
    sys.exit(main())
