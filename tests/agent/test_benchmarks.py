"""The benchmarks that the agent carries, and the agent's own archive."""

import hashlib
import json
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest
from tidemark_agent.assignment import PlannedCase
from tidemark_agent.benchmarks import compiled_program, find_benchmark, version_of
from tidemark_agent.boot.console import measurements_of, read_console
from tidemark_agent.errors import InfrastructureError

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


def test_every_case_has_runs_beyond_its_warm_up_and_every_metric_a_direction() -> None:
    for directory in (AGENTS / "benchmarks").iterdir():
        if not directory.is_dir():
            continue
        about = tomllib.loads((directory / "benchmark.toml").read_text())
        assert about["name"] == directory.name
        assert all(case["runs"] > case["warmup"] and case["timeout_seconds"] > 0 for case in about["cases"])
        assert all(metric["better"] in {"lower", "higher"} for metric in about["metrics"])


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
        "from tidemark_agent.benchmarks import find_benchmark; print(find_benchmark('mm-basic').version)"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == find_benchmark("mm-basic").version


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
