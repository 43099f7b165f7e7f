"""kernel-compile through the agent's runner, on a source that is made up."""

import hashlib
import json
import sys
from pathlib import Path

import pytest
from tidemark_agent.benchmarks.bundle import find_benchmark
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.wire.assignment import PlannedCase

from scripts.build_agent import AGENTS
from tests.agent.cases.sources import MAKEFILE, kernel_archive, script
from tests.agent.cases.support import CORE, Bench


def compiled(bench: Bench, archive: Path, *, pinned: bool = True) -> CaseResult:
    (bench.root / "benchmarks").symlink_to(AGENTS / "benchmarks")
    # Nothing of a real compiler is needed by the source that is made up.
    tools = {name: Path("/bin/sh") for name in ("gcc", "flex", "bison", "bc")}
    bench.programs = {**tools, "linux-source": archive}
    bench.pins = {"linux-source": hashlib.sha256(archive.read_bytes()).hexdigest()} if pinned else {}
    benchmark = find_benchmark("kernel-compile")
    metrics = tuple(benchmark.metrics)
    planned = PlannedCase("kernel-compile", benchmark.version, "tinyconfig-jall", 3, 1, 120, metrics)
    return bench.run(planned, CORE)


@pytest.fixture(autouse=True)
def _small_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real source needs gigabytes of disk and memory; this one does not."""
    monkeypatch.setattr("tidemark_agent.cases.runner.unmet", lambda *_: "")
    monkeypatch.setattr("tidemark_agent.cases.runner.disk_problem", lambda *_: "")


def test_each_run_compiles_anew_and_gives_three_times(bench: Bench) -> None:
    archive = kernel_archive(bench.root)
    result = compiled(bench, archive)
    assert (result.outcome, result.reason) == ("measured", "")
    assert {metric: len(values) for metric, values in result.values.items()} == {"real": 3, "user": 3, "system": 3}
    assert all(real >= 0.2 for real in result.values["real"])
    assert all(user < real for user, real in zip(result.values["user"], result.values["real"], strict=True))
    assert result.programs["linux-source"] == hashlib.sha256(archive.read_bytes()).hexdigest()


def test_source_that_nobody_pinned_skips_the_case(bench: Bench) -> None:
    result = compiled(bench, kernel_archive(bench.root), pinned=False)
    assert (result.outcome, result.values) == ("skipped", {})
    assert "linux-source" in result.reason


def test_archive_that_is_none_is_failed_and_says_so(bench: Bench) -> None:
    (bench.root / "broken.tar").write_text("no archive")
    result = compiled(bench, bench.root / "broken.tar")
    assert result.outcome == "failed"
    assert "tar ended with 2" in result.reason


def called(bench: Bench, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, Path]:
    """Call the script itself with a target of its own."""
    archive = kernel_archive(bench.root)
    kept, scratch = bench.root / "kept", bench.root / "scratch"
    kept.mkdir()
    scratch.mkdir()
    places = ["--source", str(archive), "--kept", str(kept), "--scratch", str(scratch), "--jobs", "2"]
    monkeypatch.setattr(sys, "argv", ["kernel_compile.py", "one", "2", *places, *words])
    return script("kernel-compile", monkeypatch).main(), kept


def test_compile_error_is_said_with_its_text(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = called(bench, monkeypatch, "--target", "broken")
    said = json.loads(capsys.readouterr().out)
    assert status == 1
    assert "make ended with 2" in said["error"]
    assert "mm/memory.c:1: error" in said["error"]


def test_source_is_unpacked_once_and_whole(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    status, kept = called(bench, monkeypatch)
    assert status == 0
    assert (kept / "source/Makefile").read_text() == MAKEFILE
    assert not (kept / "source.partial").exists()
