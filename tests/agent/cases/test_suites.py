"""The shipped descriptions of external programs, run with programs that speak like the real ones."""

from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import find_benchmark
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.wire.assignment import PlannedCase

from scripts.build_agent import AGENTS
from tests.agent.cases.outputs import WILL_IT_SCALE
from tests.agent.cases.support import CORE, Bench
from tests.agent.cases.test_external import tool

USEMEM = """cd "$(dirname "$0")" && test -x ./usemem || exit 9
test "$unit_size" = 1G || exit 8
i=0
while [ $i -lt "$nr_task" ]; do echo "75497472 bytes / 47593 usecs = 1549135 KB/s"; i=$((i+1)); done
echo "2454 usecs to free memory"
"""
PERF = """[ "$1 $2 $3" = "bench --format=simple mem" ] || exit 9
case "$4 $6 $8" in
"mmap demand 4KB") echo "# function 'demand' (Demand loaded mmap())"; echo 2147483648.000000 ;;
"mmap populate 2MB") echo "# function 'populate' (x)"; echo "# Memory allocation failed - maybe size (256MB)" ;;
"mmap demand 2MB") echo "Unknown benchmark: 'mmap' for collection 'mem'"; exit 1 ;;
"memcpy default 4KB") echo "# function 'default' (x)"; echo 1048576.000000 ;;
"memset x86-64-stosb 4KB") echo "Unknown function: x86-64-stosb"; echo "Available functions:"; exit 1 ;;
*) exit 7 ;;
esac
"""


def run(bench: Bench, benchmark: str, case: str, **programs: Path) -> CaseResult:
    (bench.root / "benchmarks").symlink_to(AGENTS / "benchmarks")
    bench.programs = {name.replace("_", "-"): path for name, path in programs.items()}
    about = find_benchmark(benchmark)
    metrics = tuple(about.metrics)
    return bench.run(PlannedCase(benchmark, about.version, case, 2, 1, 60, metrics), CORE)


@pytest.fixture(autouse=True)
def _machine_that_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_agent.cases.runner.unmet", lambda *_: "")


def test_will_it_scale_keeps_its_cpus_is_told_tasks_and_seconds_and_its_average_is_taken(bench: Bench) -> None:
    # -n: it leaves its tasks on the CPUs that it was given.
    script = f'[ "$*" = "-n -t 1 -s 5" ] || exit 9\ncat <<EOF\n{WILL_IT_SCALE}EOF'
    tool(bench.root / "suite/page_fault1_threads", script)
    result = run(bench, "will-it-scale", "page_fault1-threads-half", will_it_scale=bench.root / "suite")
    assert (result.outcome, result.reason) == ("measured", "")
    assert result.values == {"operations": (301.0, 301.0)}
    assert list(result.programs) == ["will-it-scale/page_fault1_threads"]


def test_will_it_scale_that_would_choose_its_cpus_itself_is_skipped(bench: Bench) -> None:
    says = "page_fault1_threads: invalid option -- 'n'"
    tool(bench.root / "suite/page_fault1_threads", f'echo "{says}" >&2\necho "Usage: x [options]"\nexit 1')
    result = run(bench, "will-it-scale", "page_fault1-threads-half", will_it_scale=bench.root / "suite")
    assert (result.outcome, result.reason) == ("skipped", says)


def test_vm_scalability_runs_in_its_own_folder_and_its_tasks_are_added_up(bench: Bench) -> None:
    tool(bench.root / "suite/usemem", "")
    tool(bench.root / "suite/case-anon-cow-rand", USEMEM)
    result = run(bench, "vm-scalability", "anon-cow-rand-all", vm_scalability=bench.root / "suite")
    assert (result.outcome, result.reason) == ("measured", "")
    assert result.values == {"rate": (1549135.0, 1549135.0)}


@pytest.mark.parametrize(
    ("benchmark", "case", "outcome", "said"),
    [
        ("mem-mmap", "demand-4k", "measured", ""),
        ("mem-mmap", "populate-2m", "failed", "Memory allocation failed - maybe size (256MB)"),
        ("mem-mmap", "demand-2m", "skipped", "Unknown benchmark: 'mmap' for collection 'mem'"),
        ("mem-mmap", "populate-4k", "failed", "exit status 7"),
        ("mem-copy", "memcpy-default-4k", "measured", ""),
        ("mem-copy", "memset-x86-64-stosb-4k", "skipped", "Unknown function: x86-64-stosb"),
    ],
)
def test_perf_is_asked_as_it_understands_it(bench: Bench, benchmark: str, case: str, outcome: str, said: str) -> None:
    result = run(bench, benchmark, case, perf=tool(bench.root / "perf", PERF))
    assert (result.outcome, result.reason) == (outcome, said)
    if outcome == "measured":
        assert result.values["rate"] in ((2048.0, 2048.0), (1.0, 1.0))
