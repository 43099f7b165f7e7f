"""Memory of an import: mails flow through the pipe of `import_mail` into PostgreSQL, and the process is watched."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.mail.mailboxes import ROOT, Thread, WorkerError, many
from bench.processes import memory_mb
from bench.scratch_database import servers
from bench.table import table

DEFAULT_MAILS = 100_000
# What the mails before the first look leave in caches is no growth: from then on memory must stay.
LOOKS = 10
MOST_GROWTH = 1.1
_QUOTED = re.compile(rb"(?m)^(>*From )")


@dataclass(frozen=True)
class Seen:
    """Resident memory in MB when so many mails had gone in."""

    mails: int
    memory_mb: float


def mbox(threads: Sequence[Thread], count: int) -> Iterator[bytes]:
    """The mails of an mbox, each with its From line."""
    for thread in many(threads, count):
        for mail in thread:
            quoted = _QUOTED.sub(rb">\1", mail)
            yield b"From mboxrd@z Thu Jan  1 00:00:00 1970\n" + quoted + b"\n" * (1 + (not quoted.endswith(b"\n")))


def memory_report(threads: Sequence[Thread], count: int) -> tuple[str, bool]:
    """The table, and whether memory stayed flat. Raises WorkerError."""
    started = time.perf_counter()
    with (
        servers() as environment,
        subprocess.Popen(
            [sys.executable, "-m", "bench.scratch_database", "bench.mail.import_run"],
            cwd=ROOT,
            env={**environment, "TIDEMARK_LOG_LEVEL": "ERROR"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as importer,
    ):
        seen = _fed(importer, threads, count)
        said, _ = importer.communicate()
    if importer.returncode:
        raise WorkerError(f"the import ended with code {importer.returncode}")
    ended = json.loads(said.splitlines()[-1])
    return shown(seen, ended, time.perf_counter() - started)


def _fed(importer: "subprocess.Popen[bytes]", threads: Sequence[Thread], count: int) -> list[Seen]:
    """Write the mails into the process; ten looks at its memory, each told at once, as the whole takes long."""
    assert importer.stdin
    seen: list[Seen] = []
    given = 0
    try:
        for given, mail in enumerate(mbox(threads, count), 1):
            importer.stdin.write(mail)
            if given % max(count // LOOKS, 1) == 0:
                seen.append(Seen(given, memory_mb(importer.pid)))
                print(f"{given} mails: {seen[-1].memory_mb:.1f} MB", file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise WorkerError(f"the import ended after {given} mails") from None
    return seen


def shown(seen: Sequence[Seen], ended: dict[str, float], seconds: float) -> tuple[str, bool]:
    first = seen[0].memory_mb
    every = [*((f"{one.mails} mails", one.memory_mb) for one in seen), ("peak, grouping too", ended["peak_mb"])]
    limit = first * MOST_GROWTH
    rows = [[what, f"{mb:.1f}", f"{mb / first:.3f}", "pass" if mb <= limit else "FAIL"] for what, mb in every]
    text = table(["memory of an import", "MB", f"of {seen[0].mails}", f"<= {MOST_GROWTH:g}"], rows)
    stored = (
        f"{ended['messages']:.0f} mails and {ended['series']:.0f} series stored, {ended['stale']:.0f} threads stale"
    )
    rate = f"{seconds:.0f} s in all, {ended['cpu_seconds']:.0f} of them CPU time of the import"
    return f"{text}\n\n{stored}; {rate}", all(mb <= limit for _, mb in every)
