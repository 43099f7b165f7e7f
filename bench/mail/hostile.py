"""Mails made to cost time or memory; each case gives its mails for a size, so that growth with the size can be seen."""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bench.kit import ROOT
from bench.mail.ours import series_in
from bench.processes import memory_mb
from bench.table import table
from server.sources.mail.parser import parse_mail

_MIB = 1024 * 1024
_DIFF = b"diff --git a/mm/x.c b/mm/x.c\n--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1 +1 @@\n-a\n+b\n"


@dataclass(frozen=True)
class Case:
    """`mails(size)` makes them; `size` is the one that is asked for."""

    name: str
    size: int
    mails: Callable[[int], Iterator[bytes]]


def mail(number: int, subject: str, body: bytes = _DIFF, parents: str = "", headers: bytes = b"") -> bytes:
    top = f"From: Ada <ada@example.org>\nSubject: {subject}\nMessage-ID: <{number}@x>\n"
    date = f"Date: Sun, 01 Nov 2026 {number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02} +0000\n"
    thread = f"In-Reply-To: {parents.rsplit(maxsplit=1)[-1]}\nReferences: {parents}\n" if parents else ""
    return (top + date + thread).encode() + headers + b"\n" + body


def _headers(headers: Callable[[int], bytes]) -> Callable[[int], Iterator[bytes]]:
    """A single patch with more headers, made for the size."""
    return lambda size: iter([mail(1, "[PATCH] x", headers=headers(size))])


def _body(
    body: Callable[[int], bytes], *, subject: str = "[PATCH] x", headers: bytes = b""
) -> Callable[[int], Iterator[bytes]]:
    """A single mail whose body is made for the size."""
    return lambda size: iter([mail(1, subject, body(size), headers=headers)])


def _subject(word: str) -> Callable[[int], Iterator[bytes]]:
    return lambda size: iter([mail(1, word * (size // len(word)))])


def _series(size: int) -> Iterator[bytes]:
    yield mail(0, f"[PATCH 0/{size}] x", b"cover\n")
    for index in reversed(range(1, size + 1)):
        yield mail(index, f"[PATCH {index}/{size}] x", parents="<0@x>")


def _without_threading(size: int) -> Iterator[bytes]:
    return (mail(index, f"[PATCH {index}/{size}] x") for index in range(1, size + 1))


def _ring(size: int) -> Iterator[bytes]:
    """Every patch answers the one before, the first one the last."""
    return (mail(n, f"[PATCH v{n % 9} {n % 5 + 1}/5] x", parents=f"<{(n - 1) % size}@x>") for n in range(size))


def _thread(size: int) -> Iterator[bytes]:
    """A discussion as deep as it is long, with twenty ancestors in each mail, half of them patches of some version."""
    for n in range(size):
        parents = " ".join(f"<{m}@x>" for m in range(max(n - 20, 0), n))
        mark = f"[PATCH v{n // 100 + 1} {n % 50 + 1}/50]" if n // 50 % 2 else "Re: [PATCH]"
        yield mail(n, f"{mark} x", parents=parents)


def _one_thread_of_single_patches(size: int) -> Iterator[bytes]:
    return (mail(n, "[PATCH] x", parents="<0@x>" if n else "") for n in range(size))


def _same_place(size: int) -> Iterator[bytes]:
    return (mail(n, "[PATCH 1/2] x", parents="<root@x>") for n in range(size))


def _same_id(size: int) -> Iterator[bytes]:
    return (mail(7, f"[PATCH 1/2] number {n}") for n in range(size))


def _parts(size: int) -> bytes:
    return b"".join(b"--b\nContent-Type: text/plain\n\nx\n" for _ in range(size)) + b"--b--\n"


def _depth(size: int) -> bytes:
    return b"".join(b'--b%d\nContent-Type: multipart/mixed; boundary="b%d"\n\n' % (n, n + 1) for n in range(size))


def _file(n: int) -> bytes:
    return _DIFF.replace(b"x.c", b"%d.c" % n)


_MIXED = b'Content-Type: multipart/mixed; boundary="b"\n'
_NESTED = b'Content-Type: multipart/mixed; boundary="b0"\n'

CASES = (
    Case("30 MB mail", 30 * _MIB, _body(lambda n: _DIFF + b"+ some line of a patch\n" * (n // 23))),
    Case("4 MB patch", 4 * _MIB - 1000, _body(lambda n: _DIFF + b"+ some line of a patch\n" * (n // 23))),
    Case("4 MB in one line", 4 * _MIB - 1000, _body(lambda n: _DIFF + b"+" * n)),
    Case("4 MB of spaces", 4 * _MIB - 1000, _body(lambda n: b" " * n + _DIFF)),
    Case("4 MB of empty lines", 4 * _MIB - 1000, _body(lambda n: b"\n" * n + _DIFF)),
    Case("4 MB of quoted lines", 4 * _MIB - 1000, _body(lambda n: b"> a: b <c@d>\n" * (n // 13), subject="Re: x")),
    Case("4 MB of trailers", 4 * _MIB - 1000, _body(lambda n: b"Acked-by: A <a@b>\n" * (n // 18) + _DIFF)),
    Case("2000-patch series", 2000, _series),
    Case("the same without threading", 2000, _without_threading),
    Case("cyclic references", 5000, _ring),
    Case("5000-mail thread", 5000, _thread),
    Case("5000 single patches in one thread", 5000, _one_thread_of_single_patches),
    Case("5000 patches for one place", 5000, _same_place),
    Case("5000 mails with one Message-ID", 5000, _same_id),
    Case("100000 references", 100_000, _headers(lambda n: b"References:" + b" <abc@example.org>\n" * n)),
    Case("100000 headers", 100_000, _headers(lambda n: b"X-Header: value\n" * n)),
    Case("header of 4 MB", 4 * _MIB - 1000, _headers(lambda n: b"To: " + b"a@b, " * (n // 5) + b"\n")),
    Case("subject of 7000 marks", 7000, _subject("[PATCH v2]")),
    Case("subject of encoded words", 7900, _subject("=?utf-8?q?=41?= ")),
    Case("10000 MIME parts", 10_000, _body(_parts, headers=_MIXED)),
    Case("parts nested 1000 deep", 1000, _body(_depth, headers=_NESTED)),
    Case("parts nested 50000 deep", 50_000, _body(_depth, headers=_NESTED)),
    Case("hunk of a billion lines", 10**9, _body(lambda n: _DIFF.replace(b"-1 +1", b"-1,%d +1,%d" % (n, n)))),
    Case("hunk header of 4 MB", 4 * _MIB - 1000, _body(lambda n: _DIFF.replace(b"@@\n", b"@@ " + b"x" * n + b"\n"))),
    Case("hunk header of 1 GB", 10**9, _body(lambda n: _DIFF.replace(b"@@\n", b"@@ " + b"x" * n + b"\n"))),
    Case("hunk header of 4 MB digits", 4 * _MIB - 1000, _body(lambda n: _DIFF.replace(b"-1", b"-" + b"1" * n))),
    Case("40000 files", 40_000, _body(lambda n: b"".join(map(_file, range(n))))),
    Case("lines that begin diffs", 4 * _MIB - 1000, _body(lambda n: b"diff --git a/x b/x\n" * (n // 19))),
    Case("lines that begin old files", 4 * _MIB - 1000, _body(lambda n: b"--- a/x\n" * (n // 8))),
    Case("one name of 4 MB", 4 * _MIB - 1000, _body(lambda n: b"diff --git a/" + b"x b/" * (n // 4) + b"\n" + _DIFF)),
)


# What hostile mails cost: CPU time and memory of reading them and putting them into series.
#
# python -m bench.mail.hostile [WORD]: only cases whose names hold the word. Every case runs in a process of its own.

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
    words = [sys.executable, "-m", "bench.mail.hostile", "--alone", str(number), str(size)]
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
    parser = argparse.ArgumentParser(prog="python -m bench.mail.hostile", description="what hostile mails cost")
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
