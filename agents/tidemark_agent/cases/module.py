"""The program of a benchmark that is a kernel module: a small one of ours that loads the module and asks it."""

import sys
from pathlib import Path

from tidemark_agent.benchmarks import Benchmark
from tidemark_agent.build.modules import module_file
from tidemark_agent.cases.description import Case
from tidemark_agent.cases.ended import CaseEndedError
from tidemark_agent.cases.model import Surroundings
from tidemark_agent.cases.programs import Ready
from tidemark_agent.version import bundle_root


def module_ready(benchmark: Benchmark, _case: Case, surroundings: Surroundings, _folder: Path) -> Ready:
    """The command that measures with the module which was built with the running kernel; skipped if there is none."""
    if surroundings.modules is None:
        raise CaseEndedError("skipped", "no modules were built with the running kernel")
    path = surroundings.modules / module_file(benchmark)
    if not path.is_file():
        name = f"{benchmark.program.name} in version {benchmark.version[:12]}"
        raise CaseEndedError("skipped", f"{name} was not built with the running kernel: see its build log")
    source = (bundle_root() / "tidemark_agent" / "cases" / "module_run.py").read_text(encoding="utf-8")
    words = (sys.executable, "-I", "-S", "-c", source, str(path), benchmark.program.name)
    return Ready(words, {path.name: path})
