"""Cases measured in a guest by the agent's own runner, as its host sees them."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import find_benchmark, program_file

from tests.testbed.disk import Files
from tests.testbed.guest import run_in_guest
from tests.testbed.kernels import Kernel
from tests.testbed.modules import benchmark_modules, module_archive

_STATE = "/var/lib/tidemark-agent"
_AGENT = "/usr/lib/tidemark-agent.pyz"
_MEASURE = Path(__file__).with_name("measure.py")
# One CPU whose clock counts instructions: the same code takes the same time, to the last digit but for interrupts.
COUNTED = ("-icount", "shift=0,sleep=off")


@dataclass(frozen=True)
class Guest:
    """Which machine to measure on; `words` go to the kernel's command line."""

    kernel: Kernel
    cpu: str
    numa: bool = False
    counted: bool = False
    words: str = ""


@dataclass(frozen=True)
class Measured:
    """What the guest's probe said, and the result of each case by BENCHMARK/CASE."""

    facts: dict[str, Any]
    results: dict[str, dict[str, Any]]

    def median(self, case: str) -> float:
        """The middle one of the values that are judged, nanoseconds per 4 KiB; the case must have been measured."""
        result = self.results[case]
        assert result["outcome"] == "measured", result
        values = sorted(result["values"]["time"][result["warmup"] :])
        return float(values[len(values) // 2])


def measured(guest: Guest, patterns: list[str], *, agent: Path, folder: Path, timeout: float = 300.0) -> Measured:
    """Boot the guest, run all cases that match (see measure.py), and read what it said."""
    words = " ".join(f"'{pattern}'" for pattern in patterns)
    output = run_in_guest(
        {**_files(folder), _AGENT: agent, "/measure.py": _MEASURE.read_text()},
        # Lines of the kernel would come between those of the program.
        f"dmesg -n 1; python3 /measure.py {_AGENT} {_STATE} {words} 2>/run/log; s=$?; tail -n 5 /run/log; exit $s",
        folder=folder,
        kernel=guest.kernel.image,
        numa=guest.numa,
        cpu=guest.cpu,
        extra=COUNTED if guest.counted else (),
        words=guest.words,
        timeout=timeout,
    )
    said = [line.partition(": ")[::2] for line in output.splitlines() if line.startswith(("facts: ", "measured: "))]
    facts = [json.loads(text) for word, text in said if word == "facts"]
    results = [json.loads(text) for word, text in said if word == "measured"]
    return Measured(facts[0], {f"{result['benchmark']}/{result['case']}": result for result in results})


def _files(folder: Path) -> Files:
    """The modules, and the program that is compiled here since the guest has no compiler."""
    program = program_file(find_benchmark("move-pages"), cache=folder / "compiled", stop=threading.Event())
    modules = {f"{_STATE}/{name}": content for name, content in benchmark_modules(module_archive()).items()}
    return {**modules, f"{_STATE}/benchmarks/{program.name}": program}
