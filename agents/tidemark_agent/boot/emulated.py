"""Which cases the qemu driver can run: the emulated system has static programs, but no agent inside."""

from collections.abc import Mapping, Sequence

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.benchmarks import Benchmark
from tidemark_agent.boot.console import Note
from tidemark_agent.cases.description import DEFAULT_COMMAND

_REASON = "needs an agent inside the machine, which the driver qemu does not have"


def split_cases(
    cases: Sequence[PlannedCase], benchmarks: Mapping[str, Benchmark]
) -> tuple[tuple[PlannedCase, ...], tuple[Note, ...]]:
    """The cases that can run as a static program that prints JSON lines, and a note for each of the others."""
    able = tuple(case for case in cases if is_static_program(benchmarks[case.benchmark], case.case))
    others = [case for case in cases if case not in able]
    return able, tuple(Note(case.benchmark, case.case, "skipped", _REASON) for case in others)


def is_static_program(benchmark: Benchmark, name: str) -> bool:
    """Whether the case is one process of a program made from the folder, called `PROGRAM CASE RUNS`.

    Settings would have to be made by an agent, and so would needs be looked at.
    """
    case = benchmark.cases.get(name)
    return (
        benchmark.program.kind == "compiled"
        and case is not None
        and case.command == DEFAULT_COMMAND
        and not case.settings
        and not case.needs
    )
