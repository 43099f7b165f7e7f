"""What mails are composed of in tests: invented findings, each with the figures that make its kind."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from server.reports.composer.told import (
    BranchRange,
    Correction,
    Culprit,
    Digest,
    DigestEntry,
    FollowUp,
    RanMachine,
    Retraction,
    Separation,
    Told,
    ToldCell,
    ToldFinding,
    ToldUarch,
    WhatRan,
    Writer,
)
from server.reports.composer.vector_words import largest

SITE = "https://perf.example.org"
WRITER = Writer("Tidemark <robot@perf.example.org>", "robot@perf.example.org")
CPUS = {
    "haswell": "Intel(R) Xeon(R) CPU E5-2680 v3 @ 2.50GHz",
    "icelakex": "Intel(R) Xeon(R) Gold 6338 CPU @ 2.00GHz",
    "zen3": "AMD EPYC 7543 32-Core Processor",
    "zen5": "AMD EPYC 9575F 64-Core Processor",
    "neoverse-n1": "Neoverse-N1",
    "rk3588": "Cortex-A76 and Cortex-A55",
}


def moved(
    uarch: str,
    case: str,
    ratio: float,
    *,
    benchmark: str = "page-copy",
    metric: str = "throughput",
    unit: str = "GB/s",
    better: str = "higher",
    base: float = 10.0,
    width: float = 0.02,
    column: str = "",
    verdict: str = "",
    mde: float = 0.015,
    speaks: bool = True,
    parameters: str = "",
) -> ToldCell:
    """A cell whose interval reaches `width` to both sides of its ratio; what crosses 1 has not changed."""
    slower = (ratio < 1) == (better == "higher")
    judged = "unchanged" if ratio * (1 - width) < 1 < ratio * (1 + width) else "regressed" if slower else "improved"
    return ToldCell(
        column=column or uarch,
        uarch=uarch,
        benchmark=benchmark,
        case=case.replace("->", "-to-").replace(" ", "-").replace("=", "-"),
        words=tuple(case.split()),
        parameters=tuple(parameters.split()),
        metric=metric,
        unit=unit,
        better=better,
        verdict=verdict or judged,
        base_mean=base,
        base_sd=base * 0.004,
        patched_mean=base * ratio,
        patched_sd=base * ratio * 0.006,
        ratio=ratio,
        low=ratio * (1 - width),
        high=ratio * (1 + width),
        boots=(8, 8),
        mde=mde,
        speaks=speaks,
    )


def calm(uarch: str, case: str, mde: float = 0.012, **fields: str) -> ToldCell:
    return replace(moved(uarch, case, 1.001, **fields), mde=mde)  # type: ignore[arg-type]


def unsure(uarch: str, case: str, mde: float = 0.06, **fields: str) -> ToldCell:
    return replace(calm(uarch, case, mde, **fields), verdict="inconclusive")


def vector_of(cells: Sequence[ToldCell]) -> tuple[ToldUarch, ...]:
    """What the cells of each microarchitecture say together."""
    found: dict[str, set[str]] = {}
    for cell in cells:
        found.setdefault(cell.uarch, set()).add(cell.verdict)
    return tuple(ToldUarch(name, _together(found[name])) for name in sorted(found))


def _together(verdicts: set[str]) -> str:
    moves = [verdict for verdict in ("regressed", "improved") if verdict in verdicts]
    if moves:
        return "split" if len(moves) > 1 else moves[0]
    return "unchanged" if "unchanged" in verdicts else "inconclusive"


def kind_of(cells: Sequence[ToldCell]) -> str:
    verdict = _together({cell.verdict for cell in cells})
    return "unchanged" if verdict == "inconclusive" else verdict


def _worst(cells: Sequence[ToldCell]) -> str:
    cell = largest(cells, "regressed") or largest(cells, "improved") or cells[0]
    return f"{cell.benchmark}/{cell.case}"


def ran(cells: Sequence[ToldCell]) -> WhatRan:
    names = dict.fromkeys(cell.uarch for cell in cells)
    return WhatRan(
        base="5f1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        base_subject="Linux 6.19-rc2",
        tree="mm",
        kernels=("server-x86-64 (x86_64), gcc 14.2.0",),
        machines=tuple(RanMachine(f"{name}-1", name, CPUS.get(name, ""), "wall clock") for name in names),
        command_lines=("console=ttyS0 mitigations=auto",),
        patched="0c1d2e3f405162738495a6b7c8d9eafb0c1d2e3f",
    )


def finding(cells: Sequence[ToldCell], **fields: object) -> ToldFinding:
    """Of a series, unless told otherwise."""
    given: dict[str, object] = {
        "writer": WRITER,
        "kind": kind_of(cells),
        "virtual": False,
        "subject": "[PATCH v2 0/3] mm: copy large folios in batches",
        "uarchs": vector_of(cells),
        "cells": tuple(cells),
        "columns": tuple(dict.fromkeys(cell.column for cell in cells)),
        "run": ran(cells),
        "page": f"{SITE}/series/7/",
        "reproduce": _worst(cells),
        "agent": f"{SITE}/tidemark-agent.pyz",
        "version": "v2",
    }
    return ToldFinding(**(given | fields))  # type: ignore[arg-type]


SIZES = ("64K", "512K", "2M")
PLACES = ("0->0", "0->1", "1->0")


_OF_COPIES = "function nodes folio cache"


def split() -> ToldFinding:
    """Copies from another node lose where the CPU has no fast short copies, and win elsewhere."""
    cells = []
    for n, place in enumerate(PLACES):
        for m, size in enumerate(SIZES):
            case = f"folio_copy {place} {size} cold"
            cells += [
                moved("zen3", case, 1 - 0.04 * (n + 1) * (m + 1) - 0.05, base=11.2 + n, parameters=_OF_COPIES),
                moved("zen5", case, 1.3 + 0.1 * n + 0.15 * m, base=24.5 - n, parameters=_OF_COPIES),
                calm("icelakex", case, 0.009 + 0.001 * n, parameters=_OF_COPIES),
                moved("zen3", case.replace("cold", "hot"), 0.56 + 0.01 * m, base=10.5 + n, parameters=_OF_COPIES),
            ]
    far = "folio_copy 0->2 2M cold"
    cells += [unsure("zen5", far, 0.18, parameters=_OF_COPIES), calm("zen3", far, 0.02, parameters=_OF_COPIES)]
    return finding(
        cells,
        separation=Separation(
            facts=("no fsrm", "no erms"),
            changed=("zen3-1",),
            others=("zen5-1",),
            routines=("folio_copy", "folio_mc_copy"),
            features=("fsrm", "erms"),
            rivals=14,
            machines=(1, 1),
            chance=1.0,
        ),
        culprit=Culprit(
            sentence=(
                "Bisection: made by patch 2 of 3: mm: Copy folios by rep movsb (41 % slower in throughput of "
                "folio_copy-1-to-0-2M-cold on zen3); without it the change is gone."
            ),
            walk=("patch 1 adds nothing beyond 1.0 % on zen3 and zen5", "patch 3 changes no code on zen3 and zen5"),
        ),
        gaps=("neoverse-n1-1: kernel did not boot: no console within 300 s",),
        uncovered=(
            ("cix-p1", "the tree mm does not ask for them"),
            ("sapphirerapids", "out of service"),
            ("zen4", "the tree mm does not ask for them"),
        ),
        meanings=(("hot", "the same memory again and again"), ("cold", "each piece once, evicted before")),
        uarchs=(
            *vector_of(cells),
            ToldUarch("neoverse-n1", "inconclusive", missing="kernel did not boot: no console within 300 s"),
        ),
    )


def one_of_four() -> ToldFinding:
    """A fault path that got slower on one CPU."""
    cells = [
        moved(
            "haswell", f"fault {size}", ratio, benchmark="mm-basic", metric="time", unit="ns", better="lower", base=850
        )
        for size, ratio in (("4k", 1.124), ("64k", 1.71), ("2m", 1.0))
    ]
    for uarch in ("icelakex", "zen3", "zen5"):
        cells += [
            calm(uarch, f"fault {size}", benchmark="mm-basic", metric="time", unit="ns") for size in ("4k", "64k", "2m")
        ]
    return finding(cells)


def improved() -> ToldFinding:
    cells = [
        moved("zen5", f"clear {size} demand", 2.02 - n / 9, benchmark="page-clear") for n, size in enumerate(SIZES)
    ]
    cells += [calm("icelakex", f"clear {size} demand", benchmark="page-clear") for size in SIZES]
    return finding(
        cells,
        separation=Separation(
            ("clzero",), ("zen5-1",), ("icelakex-1",), rivals=10, uncounted=True, machines=(1, 1), chance=1.0
        ),
    )


def no_change() -> ToldFinding:
    cells = [
        calm(uarch, f"folio_copy {place} {size} cold", 0.008 + 0.003 * n)
        for uarch in ("zen3", "zen5", "icelakex")
        for n, place in enumerate(PLACES)
        for size in SIZES
    ]
    same = ToldUarch("neoverse-n1", "unchanged", same_code=True)
    return finding(cells, uarchs=(*vector_of(cells), same), gaps=("neoverse-n1-1: both kernels run the same code",))


def partly_told() -> ToldFinding:
    """28 of 50 cells within 2 %, 22 of them too noisy."""
    cells = [calm("zen3", f"read {n}k qd{q}", 0.02, benchmark="block-io") for n in (4, 8, 16, 64) for q in range(1, 8)]
    cells += [
        unsure("zen5", f"read {n}k qd{q}", 0.03 + 0.01 * (q % 4), benchmark="block-io")
        for n in (4, 8)
        for q in range(1, 12)
    ]
    return finding(cells)


def four_hundred() -> ToldFinding:
    """Eight CPUs, fifty cases: half of them moved somewhere."""
    cells = []
    for u in range(8):
        for n in range(50):
            case = f"stress {('mmap', 'brk', 'futex', 'pipe', 'poll')[n % 5]} threads={2 ** (n // 5)}"
            ratio = 1 + (0.03 + 0.01 * n) * (-1 if u < 3 else 1) if n % 2 and u < 5 else 1.0
            cells.append(
                moved(f"uarch-{u}", case, ratio, benchmark="stress", metric="ops", unit="1/s", base=52_000 + 100 * n)
            )
    return finding(cells)


def one_machine() -> ToldFinding:
    cells = [moved("zen3", "pipe 4k", 0.874, benchmark="ipc", metric="rate", unit="1/s", base=1_204_000.0)]
    return finding(cells, subject="[PATCH] pipe: wake readers later", version="v1")


def core_types() -> ToldFinding:
    cells = []
    for n, size in enumerate(SIZES):
        cells += [
            moved("rk3588", f"copy {size}", 0.9 - 0.1 * n, column="rk3588/cortex-a76", base=8.4),
            calm("rk3588", f"copy {size}", column="rk3588/cortex-a55"),
            calm("neoverse-n1", f"copy {size}"),
        ]
    return finding(cells)


def tree() -> ToldFinding:
    """A regression of a branch with its culprit."""
    told = one_of_four()
    sha = "9c8b7a6d5e4f30211203f4e5d6a7b8c9d0e1f203"
    return replace(
        told,
        subject="",
        version="",
        page=f"{SITE}/findings/31/",
        run=replace(told.run, patched="aa8b7a6d5e4f30211203f4e5d6a7b8c9d0e1f2aa"),
        culprit=Culprit(
            sentence=(
                "Bisection: made by 9c8b7a6d5e4f: mm: take the lock for large folios (1.71x slower in time of "
                "fault-64k on haswell); without it the change is gone."
            ),
            sha=sha,
            subject="mm: take the lock for large folios",
            author="Grace Example <grace@example.org>",
        ),
        range=BranchRange(
            branch="mm-unstable",
            good="1111111122222222333333334444444455555555",
            good_subject="mm: sort the headers",
            bad="aa8b7a6d5e4f30211203f4e5d6a7b8c9d0e1f2aa",
            bad_subject="Merge branch 'mm-hotfixes' into mm-unstable",
            timeline=f"{SITE}/timelines/88/",
        ),
    )


def follow_up() -> FollowUp:
    """The second version mends what the first one cost."""
    before = replace(split(), version="v1")
    later = [
        replace(calm("zen3", cell.words[0], 0.012), case=cell.case, words=cell.words) if cell.uarch == "zen3" else cell
        for cell in before.cells
        if cell.verdict != "inconclusive"
    ]
    return FollowUp(before, finding(later))


def retraction() -> Retraction:
    cells = split().cells
    worst = max((cell for cell in cells if cell.uarch == "zen3"), key=lambda cell: 1 / (cell.ratio or 1))
    return Retraction(
        writer=WRITER,
        subject="[PATCH v2 0/3] mm: copy large folios in batches",
        said="Regressed: up to 41 % slower on zen3; no change on icelakex (would have seen 1.1 %).",
        sent_at=datetime(2026, 3, 2, 9, 30, tzinfo=UTC),
        why="16 fresh boots of both kernels show no change there (would have seen 1.2 %): zen3-1 had a failing fan.",
        withdrawn=(worst,),
        page=f"{SITE}/series/7/",
    )


def correction() -> Correction:
    return Correction(
        said="Regressed: up to 3.0x slower on haswell.",
        sent_at=datetime(2026, 3, 2, 9, 30, tzinfo=UTC),
        now=one_of_four(),
    )


def bisection() -> ToldFinding:
    return replace(split(), bisected=True)


def digest() -> Digest:
    """One entry of each class."""
    entries = []
    for n, told in enumerate((improved(), split(), one_of_four())):
        entries.append(
            DigestEntry(
                kind=told.kind,
                uarchs=told.uarchs,
                cells=told.speaking,
                revision="9c8b7a6d5e4f30211203f4e5d6a7b8c9d0e1f203" if n else "",
                subject="mm: take the lock for large folios",
                news=("confirmed", "reported", "fixed by 0a1b2c3d4e5f")[n],
                page=f"{SITE}/findings/{30 + n}/",
            )
        )
    return Digest(
        writer=WRITER,
        tree="mm",
        since=datetime(2026, 3, 2, tzinfo=UTC),
        until=datetime(2026, 3, 9, tzinfo=UTC),
        entries=tuple(entries),
        heads=41,
        page=f"{SITE}/findings/?tree=mm",
    )


MAILS: dict[str, Told] = {
    "split": split(),
    "one-of-four": one_of_four(),
    "improved": improved(),
    "no-change": no_change(),
    "partly-told": partly_told(),
    "four-hundred-cells": four_hundred(),
    "one-machine": one_machine(),
    "core-types": core_types(),
    "tree": tree(),
    "follow-up": follow_up(),
    "retraction": retraction(),
    "correction": correction(),
    "bisection": bisection(),
    "digest": digest(),
}
