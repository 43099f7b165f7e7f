"""`spool`: what waits for the server, and what it refused."""

import json
import time
from pathlib import Path

from tidemark_agent.printable import one_line
from tidemark_agent.waiting import delay_of

_LONGEST_REASON = 160


def print_spool(directory: Path) -> int:
    """Print a line for each result below `directory` (a state directory's `spool`); the exit status is 0."""
    waiting = sorted(directory.glob("*.json"))
    refused = sorted((directory / "refused").glob("*.json"))
    print(f"{len(waiting)} waiting, {len(refused)} refused in {directory}")
    for file in waiting:
        print(f"waiting  {_about(file)}{_next_turn(file)}")
    for file in refused:
        print(f"refused  {_about(file)}: {_reason(file)}")
        print(f"         {file}")
    return 0


def _about(file: Path) -> str:
    """The path that the result goes to, and its age by the file's own time."""
    try:
        record = json.loads(file.read_bytes())
        path, age = one_line(str(record["path"])), time.time() - file.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return f"{one_line(file.name)} (cannot be read)"
    return f"{path}, {file.stat().st_size} bytes, {max(0.0, age) / 3600:.1f} h old"


def _next_turn(file: Path) -> str:
    delay = delay_of(file)
    if delay is None:
        return ""
    turn = "now" if delay.is_over(time.time()) else f"in {(delay.next_at - time.time()) / 60:.0f} min"
    return f"; failed {delay.failures} times, next try {turn}: {one_line(delay.reason, _LONGEST_REASON)}"


def _reason(file: Path) -> str:
    try:
        text = file.with_suffix(".reason").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "no reason on record"
    return one_line(text, _LONGEST_REASON)
