"""`tidemark-agent cases` says what can be measured here."""

import argparse
import json
from pathlib import Path

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.benchmarks.bundle import benchmark_names, find_benchmark
from tidemark_agent.cases import runner


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["cases", *words]) == 0
    return capsys.readouterr().out


def test_every_case_is_listed_with_its_version_and_why_it_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = json.loads(listed(capsys, "--json", "--config", str(tmp_path / "none.toml")))
    cases = {(item["benchmark"], item["case"]) for item in items}
    assert cases == {(name, case) for name in benchmark_names() for case in find_benchmark(name).cases}
    problems = {item["benchmark"]: item["problem"] for item in items}
    assert problems["will-it-scale"].startswith("will-it-scale is not installed")
    assert problems["mm-basic"] == ""
    assert all(item["version"] == find_benchmark(item["benchmark"]).version for item in items)


def test_text_groups_cases_by_their_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = listed(capsys, "--config", str(tmp_path / "none.toml"))
    assert "  can run (5): fault-4k, fault-thp, cow-fault, copy, mmap-munmap\n" in text
    assert "will-it-scale is not installed: [programs] in agent.toml says where it is (48): page_fault1-" in text


def test_programs_of_the_configuration_are_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "brk1_threads").write_text("")
    config = tmp_path / "agent.toml"
    config.write_text(
        f'server = "https://tidemark.example.org"\ntoken_file = "/none"\nstate_dir = "{tmp_path}"\n'
        f'[programs]\nwill-it-scale = "{suite}"\n'
    )
    items = json.loads(listed(capsys, "--json", "--config", str(config)))
    problems = {item["case"]: item["problem"] for item in items if item["benchmark"] == "will-it-scale"}
    assert problems["brk1-threads-1"] == "" or problems["brk1-threads-1"].startswith("needs 1024 MiB")
    assert problems["brk1-processes-1"] == f"will-it-scale at {suite} has no brk1_processes"


def test_disk_is_looked_at_where_cases_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "disk_problem", lambda _wanted, directory: f"looked at {directory}")
    config = tmp_path / "agent.toml"
    config.write_text(f'server = "https://tidemark.example.org"\ntoken_file = "/none"\nstate_dir = "{tmp_path}"\n')
    items = json.loads(listed(capsys, "--json", "--config", str(config)))
    assert {item["problem"] for item in items if item["benchmark"] == "mm-basic"} == {f"looked at {tmp_path}"}


def test_wrong_configuration_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "agent.toml").write_text("server = 7\n")
    options = argparse.Namespace(config=tmp_path / "agent.toml", json=False)
    assert runner.list_cases(options) == 1
    assert "agent.toml" in capsys.readouterr().out
