"""What hostile mails cost: CPU time and memory of reading them and putting them into series.

python -m bench.hostile [WORD]: only cases whose names hold the word. Every case runs in a process of its own.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from bench.hostile_mails import CASES, Case
from bench.kit import ROOT
from bench.processes import memory_mb
from bench.table import table
from server.sources.mail.collect import series_in
from server.sources.mail.parser import parse_mail

MOST_SECONDS = 5.0
# Twice the mail may take twice the time, and some more for what is measured badly; four times would be its square.
MOST_GROWTH = 3.0
_TOO_FAST_FOR_GROWTH = 0.2
_RECEIVED = datetime(2027, 1, 1, tzinfo=UTC)
_LONGEST = 600


def cost(case: Case, size: int) -> dict[str, float | str]:
    """In this process: CPU seconds, memory above that of the mails themselves, and what was made of them."""
    mails = list(case.mails(size))
    bytes_of_all = sum(map(len, mails))
    memory = memory_mb("self", "VmHWM")
    started = time.process_time()
    parsed = [parse_mail(raw, blob=str(n), received_at=_RECEIVED) for n, raw in enumerate(mails)]
    found = list(series_in(parsed))
    spent = time.process_time() - started
    reasons = Counter(mail.reason[:60] for mail in parsed if mail.reason).most_common(1)
    made = [f"{number} {kind}" for kind, number in Counter(mail.kind for mail in parsed).items()]
    made += [f"{len(found)} series" if found else "", *(reason for reason, _ in reasons)]
    return {
        "mb": bytes_of_all / 1e6,
        "seconds": spent,
        "memory_mb": memory_mb("self", "VmHWM") - memory,
        "made": "; ".join(filter(None, made)),
    }


def _in_own_process(number: int, size: int) -> dict[str, float | str]:
    words = [sys.executable, "-m", "bench.hostile", "--alone", str(number), str(size)]
    try:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return {"mb": 0.0, "seconds": float(_LONGEST), "memory_mb": 0.0, "made": "ended by its time limit"}
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return {"mb": 0.0, "seconds": float("inf"), "memory_mb": 0.0, "made": f"ended with {done.returncode}: {said}"}
    found: dict[str, float | str] = json.loads(done.stdout)
    return found


def verdict(seconds: float, half: float) -> str:
    """`half` is the time of the case in half its size."""
    quadratic = seconds >= _TOO_FAST_FOR_GROWTH and seconds > MOST_GROWTH * half
    return "FAIL" if quadratic or seconds > MOST_SECONDS else "pass"


def row(number: int, case: Case) -> list[str]:
    half, full = (_in_own_process(number, size) for size in (case.size // 2, case.size))
    seconds, before = float(full["seconds"]), float(half["seconds"])
    growth = f"{seconds / before:.1f}" if seconds >= _TOO_FAST_FOR_GROWTH and before else "-"
    shown = [f"{float(full['mb']):.1f}", f"{seconds:.2f}", growth, f"{float(full['memory_mb']):.0f}"]
    return [case.name, *shown, verdict(seconds, before), str(full["made"])]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description="what hostile mails cost")
    parser.add_argument("word", nargs="?", default="")
    parser.add_argument("--alone", nargs=2, type=int, metavar=("CASE", "SIZE"), help="one case in this process")
    chosen = parser.parse_args(arguments)
    if chosen.alone:
        number, size = chosen.alone
        print(json.dumps(cost(CASES[number], size)))
        return 0
    rows = [row(number, case) for number, case in enumerate(CASES) if chosen.word in case.name]
    limits = [f"CPU s (<= {MOST_SECONDS:g})", f"of half (<= {MOST_GROWTH:g})"]
    print(table(["hostile mails", "MB", *limits, "memory, MB", "", "made of it"], rows))
    return int(any("FAIL" in cells for cells in rows))


if __name__ == "__main__":
    sys.exit(main())
