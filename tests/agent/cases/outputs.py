"""What the external programs print, written for the tests, and the real outputs that may lie beside the repository."""

from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark_agent.cases.runs import parser_from

from scripts.build_agent import AGENTS

# Recorded outputs of the real programs; the tests of this folder do not need them.
RECORDED = AGENTS.parent.parent / "shared" / "benchmark-outputs"

PERF = "# function 'demand' (Demand loaded mmap())\n2780101246.944778\n"
WILL_IT_SCALE = """testcase:Anonymous memory page fault
warmup
min:10 max:20 total:30
min:11 max:21 total:32
measurement
min:100 max:200 total:300
min:101 max:201 total:303
average:301
"""
USEMEM = """tasks: 2
the initialization time is 0 secs 7 usecs
75497472 bytes / 47593 usecs = 1549135 KB/s
2454 usecs to free memory
75497472 bytes / 48120 usecs = 1532169 KB/s
2426 usecs to free memory
"""

Parse = Callable[[str, str], Sequence[tuple[str, float]]]


def parser(path: str) -> Parse:
    return parser_from((AGENTS / "benchmarks" / path).read_text(encoding="utf-8"))


# Parser, case, whole output, values.
KNOWN: dict[str, tuple[Parse, str, str, list[tuple[str, float]]]] = {
    "perf": (parser("mem-mmap/perf_simple.py"), "demand-4k", PERF, [("rate", 2780101246.944778 / 2**20)]),
    "will-it-scale": (
        parser("will-it-scale/will_it_scale.py"),
        "page_fault1-threads-all",
        WILL_IT_SCALE,
        [("operations", 301.0)],
    ),
    "usemem": (
        parser("vm-scalability/usemem.py"),
        "anon-w-seq-half",
        USEMEM,
        [("rate", 1549135.0 + 1532169.0)],
    ),
}


def recorded(pattern: str) -> list[Path]:
    return sorted(RECORDED.glob(pattern)) if RECORDED.is_dir() else []
