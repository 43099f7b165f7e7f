"""The benchmarks that the agent carries, and the agent's own archive."""

import hashlib
import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import (
    Benchmark,
    benchmark_names,
    compiled_program,
    find_benchmark,
    program_file,
    version_of,
)
from tidemark_agent.benchmarks.description import Program
from tidemark_agent.boot.console import measurements_of, read_console
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.wire.assignment import PlannedCase

from scripts.build_agent import AGENTS, build_agent


def test_version_is_the_hash_that_the_readme_describes() -> None:
    files = (("b.c", b"two"), ("a.toml", b"one"), ("a/z", b"three"))
    text = b""
    for path, content in (("a.toml", b"one"), ("a/z", b"three"), ("b.c", b"two")):
        text += path.encode() + b"\0" + hashlib.sha256(content).hexdigest().encode() + b"\0"
    assert version_of(files) == hashlib.sha256(text).hexdigest()


def test_version_changes_with_any_byte_or_name() -> None:
    versions = {
        version_of((("a", b"1"),)),
        version_of((("a", b"2"),)),
        version_of((("b", b"1"),)),
        version_of((("a", b"1"), ("b", b""))),
    }
    assert len(versions) == 4


def test_unknown_benchmark_is_our_fault() -> None:
    with pytest.raises(InfrastructureError, match="no benchmark nothing"):
        find_benchmark("nothing")


def test_same_sources_make_the_same_archive(tmp_path: Path) -> None:
    first = build_agent(tmp_path / "a.pyz")
    second = build_agent(tmp_path / "b.pyz")
    assert first == second
    assert (tmp_path / "a.pyz").read_bytes() == (tmp_path / "b.pyz").read_bytes()


def test_archive_runs_alone_and_carries_its_benchmarks(tmp_path: Path) -> None:
    version = build_agent(tmp_path / "agent.pyz")
    command = [sys.executable, "-I", str(tmp_path / "agent.pyz"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert said.stdout.strip() == version
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'agent.pyz')!r}); "
        "from tidemark_agent.benchmarks.bundle import find_benchmark; print(find_benchmark('mm-basic').version)"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == find_benchmark("mm-basic").version


def test_archive_carries_every_file_of_every_benchmark(tmp_path: Path) -> None:
    build_agent(tmp_path / "agent.pyz")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'agent.pyz')!r}); "
        "from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark; "
        "print(*(find_benchmark(name).version for name in benchmark_names()))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [find_benchmark(name).version for name in benchmark_names()]


def test_program_is_compiled_once_and_a_failed_compilation_leaves_nothing(tmp_path: Path) -> None:
    benchmark = find_benchmark("mm-basic")
    fake = replace(benchmark.program, command=("cp", "mm_basic.c", "mm_basic"))
    broken = replace(benchmark.program, command=("false",))
    empty = replace(benchmark.program, command=("true",))
    for program in (broken, empty):
        with pytest.raises(InfrastructureError):
            program_file(with_program(benchmark, program), cache=tmp_path, stop=threading.Event())
    assert list(tmp_path.iterdir()) == []
    made = program_file(with_program(benchmark, fake), cache=tmp_path, stop=threading.Event())
    assert made.stat().st_mode & 0o777 == 0o755
    assert program_file(with_program(benchmark, broken), cache=tmp_path, stop=threading.Event()) == made


def with_program(benchmark: Benchmark, program: Program) -> Benchmark:
    return replace(benchmark, description=replace(benchmark.description, program=program))


@pytest.mark.real
def test_mm_basic_runs_here_and_its_output_is_understood(tmp_path: Path) -> None:
    benchmark = find_benchmark("mm-basic")
    program = tmp_path / "mm_basic"
    program.write_bytes(compiled_program(benchmark, cache=tmp_path, stop=threading.Event()))
    program.chmod(0o755)
    for name in benchmark.cases:
        case = PlannedCase("mm-basic", benchmark.version, name, 3, 1, 60, metrics=("time",))
        said = subprocess.run([program, name, "3"], capture_output=True, text=True, check=False)
        text = f"@@n begin case-0\n{said.stdout}\n@@n end case-0 {said.returncode}\n"
        measured, notes = measurements_of(read_console(text.encode(), "n"), [case])
        if said.returncode == 0:
            assert [len(measurement.values) for measurement in measured] == [3]
        else:
            # A host without huge pages is a host, too: the program must say so and give no value.
            assert name == "fault-thp"
            assert "huge pages" in notes[0].reason


@pytest.mark.real
@pytest.mark.parametrize("arguments", [[], ["copy"], ["copy", "0"], ["copy", "x"], ["nothing", "1"]])
def test_mm_basic_refuses_wrong_arguments(tmp_path: Path, arguments: list[str]) -> None:
    program = tmp_path / "mm_basic"
    program.write_bytes(compiled_program(find_benchmark("mm-basic"), cache=tmp_path, stop=threading.Event()))
    program.chmod(0o755)
    said = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (2, "")


def test_facts_and_results_are_json() -> None:
    command = [sys.executable, "-m", "tidemark_agent", "probe", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=AGENTS)
    facts = json.loads(said.stdout)
    assert facts["cpus"] >= 1
    assert set(facts) >= {"uarch", "vendor", "virtual", "clock", "core_types", "memory_kb"}
