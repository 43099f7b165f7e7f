"""The recorded run of the fuzzers over the reading of mails.

python -m bench.mail.fuzz [--mails N] [--guided N] [--stored N] [--seed SEED]

Mails of the corpus and our own are spoiled at random, others are found by coverage (atheris), and some are stored in
PostgreSQL. Nothing may raise, take more than two seconds of CPU time, or be lost. What breaks is saved in .cache/fuzz.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.kit import ROOT, PeerError, environment_of
from bench.mail.fuzz_guard import LIMIT_SECONDS, Tally, read_tally, save
from bench.mail.fuzz_random import mail_of, seeds
from bench.scratch_database import servers
from bench.table import table

FOLDER = ROOT / ".cache" / "fuzz"
ATHERIS = "atheris==3.0.0"
Way = Callable[[int, int, Path], Tally]
_MAILS, _GUIDED, _STORED = 100_000, 100_000, 2_000


def run(words: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> int:
    """Wait for a worker; what it says goes to `log`."""
    paths = {**(environment or os.environ), "PYTHONPATH": str(ROOT), "TIDEMARK_LOG_LEVEL": "ERROR"}
    with log.open("ab") as file:
        return subprocess.run(
            list(words), cwd=ROOT, env=paths, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode


def at_random(seed: int, count: int, folder: Path) -> Tally:
    """Mails 0 to `count` of this seed; a worker that dies is one stall, and another goes on behind that mail."""
    total = Tally()
    first = 0
    while first < count:
        (folder / "random.json").unlink(missing_ok=True)
        words = [sys.executable, "-m", "bench.mail.fuzz_random", str(seed), str(first), str(count), str(folder)]
        code = run(words, folder / "random.log")
        total.add(_tally(folder / "random.json"))
        if code == 0:
            break
        last = int((folder / "progress").read_bytes() or b"0")
        threads = seeds()
        raw = mail_of(threads, [mail for thread in threads for mail in thread], seed, last)
        save(folder, f"{seed}:{last}:died", raw, f"the process ended with code {code}")
        total.stalls += 1
        total.troubles[f"the process ended with code {code}"] += 1
        first = last + 1
    return total


def guided(seed: int, count: int, folder: Path) -> Tally:
    """`count` mails chosen by atheris; it saves the mail itself when it dies, and is started again."""
    total = Tally()
    python = environment_of(ATHERIS, ())
    while total.mails < count:
        (folder / "guided.json").unlink(missing_ok=True)
        words = [python, "-m", "bench.mail.fuzz_guided", str(seed + total.mails), str(count - total.mails), str(folder)]
        code = run(words, folder / "guided.log")
        found = _tally(folder / "guided.json")
        total.add(found)
        if code:
            total.stalls += 1
            total.troubles[f"the process ended with code {code}; see guided.log"] += 1
        if not found.mails:
            break
    return total


def stored(seed: int, count: int, folder: Path) -> Tally:
    total = Tally()
    (folder / "store.json").unlink(missing_ok=True)
    with servers() as environment:
        words = [
            sys.executable,
            "-m",
            "bench.scratch_database",
            "bench.mail.fuzz_store",
            str(seed),
            str(count),
            str(folder),
        ]
        code = run(words, folder / "store.log", environment)
    if code:
        total.crashes += 1
        total.troubles[f"the process ended with code {code}; see store.log"] += 1
    total.add(_tally(folder / "store.json"))
    return total


def _tally(path: Path) -> Tally:
    return read_tally(path) if path.exists() else Tally()


def timed(named: tuple[str, Way, int], seed: int, folder: Path) -> tuple[str, Tally, float]:
    """What came of one way, and how many seconds it took."""
    name, way, count = named
    started = time.perf_counter()
    return name, way(seed, count, folder) if count else Tally(), time.perf_counter() - started


def row(name: str, tally: Tally, seconds: float) -> list[str]:
    slowest = f"{tally.slowest:.2f}" if tally.slowest_name else "-"
    kinds = ", ".join(f"{number} {kind}" for kind, number in tally.kinds.most_common())
    return [name, *map(str, (tally.mails, tally.crashes, tally.stalls)), slowest, f"{seconds:.0f}", kinds]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.mail.fuzz", description="spoiled mails, by the hundred thousand"
    )
    parser.add_argument("--mails", type=int, default=_MAILS, help="spoiled at random")
    parser.add_argument("--guided", type=int, default=_GUIDED, help="found by coverage")
    parser.add_argument("--stored", type=int, default=_STORED, help="stored in PostgreSQL")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args(arguments)
    folder = FOLDER / str(chosen.seed)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {chosen.seed}; findings go to {folder.relative_to(ROOT)}", flush=True)
    ways: list[tuple[str, Way, int]] = [
        ("at random", at_random, chosen.mails),
        ("by coverage", guided, chosen.guided),
        ("stored", stored, chosen.stored),
    ]
    total = Tally()
    try:
        # Side by side: all of the work is done by workers in processes of their own.
        with ThreadPoolExecutor() as pool:
            done = list(pool.map(lambda way: timed(way, chosen.seed, folder), ways))
    except PeerError as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    for _, found, _ in done:
        total.add(found)
    head = ["mails", "number", "crashes", f"stalls > {LIMIT_SECONDS:g} s", "slowest, CPU s", "seconds", "kinds"]
    print(table(head, [row(*one) for one in done]))
    slowest = f"{total.slowest:.2f} s for reading {total.slowest_name or '-'} twice"
    print(f"{total.mails} mails in all; the slowest took {slowest}")
    for what, number in total.troubles.most_common():
        print(f"{number} x {what}")
    enough = total.mails >= chosen.mails + chosen.guided + chosen.stored
    return 0 if enough and not total.troubles else 1


if __name__ == "__main__":
    sys.exit(main())
