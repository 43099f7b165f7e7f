"""`reproduce`: a published case on this machine, and what the table says about it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.cases.programs import CaseResult
from tidemark_agent.probe import probe_system
from tidemark_agent.reproduce import here
from tidemark_agent.reproduce.command import table
from tidemark_agent.reproduce.document import read_document
from tidemark_agent.reproduce.here import Here, read_record, record_of

from tests.agent.reproduce.documents import build_cell, build_document


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here.measure_here, "__kwdefaults__", {"busy": lambda _root: ()})


def reproduce(tmp_path: Path, document: dict[str, Any], *words: str) -> int:
    file = tmp_path / "case.json"
    file.write_text(json.dumps(document))
    return main(["reproduce", str(file), "--state-dir", str(tmp_path / "state"), "--no-prepare", *words])


def test_published_case_runs_here_and_stands_in_the_same_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, build_document()) == 0
    said = capsys.readouterr().out
    lines = {line.split()[0]: line for line in said.splitlines() if line}
    assert lines["box-zen5"].split()[:5] == ["box-zen5", "zen5", "412", "206", "0.500"]
    assert "improved" in lines["box-zen5"]
    assert "5 runs" in lines["here"] or "5 runs" in said
    assert "none: one boot" in said
    assert "not prepared: --no-prepare was given" in said
    assert "is no comparison" in said


def test_other_version_of_the_benchmark_is_not_run_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = build_document()
    document["case"]["version"] = "0" * 64
    assert reproduce(tmp_path, document) == 1
    assert "in version 000000000000, this agent has" in capsys.readouterr().err
    assert reproduce(tmp_path, document, "--any-version", "--runs", "3") == 0
    said = capsys.readouterr().out
    assert "another version of the benchmark" in said
    assert "2 runs" in said


@pytest.mark.parametrize("name", ["session.jsonl", "installed"])
def test_nothing_is_measured_beside_a_session_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / name).touch()
    config = tmp_path / "agent.toml"
    config.write_text(f'server = "http://127.0.0.1:9"\ntoken_file = "/dev/null"\nstate_dir = "{tmp_path}"\n')
    assert reproduce(tmp_path, build_document(), "--config", str(config)) == 1
    assert "a session is under way on this machine" in capsys.readouterr().err
    (tmp_path / "lab" / name).unlink()
    assert reproduce(tmp_path, build_document(), "--config", str(config)) == 0


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("benchmark", "no-such", "no benchmark no-such"),
        ("name", "no-such", "has no case no-such"),
    ],
)
def test_unknown_benchmark_or_case_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, value: str, words: str
) -> None:
    document = build_document()
    document["case"][part] = value
    assert reproduce(tmp_path, document) == 1
    assert words in capsys.readouterr().err


def test_json_of_one_boot_gives_ratios_in_the_next_and_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(tmp_path, build_document(), "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["results"][0]["values"]["time"]) == 6
    record["boot_id"] = "another"
    record["results"][0]["values"]["time"] = [1.0] * 6
    (tmp_path / "earlier.json").write_text(json.dumps(record))
    assert reproduce(tmp_path, build_document(), "--against", str(tmp_path / "earlier.json")) == 0
    said = capsys.readouterr().out
    assert "of the earlier median 1\n" in said
    assert "no interval and no verdict" in said
    assert "the same boot" not in said


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "tidemark-reproduction", "version": 1}', "\x00"])
def test_earlier_file_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "earlier.json").write_text(content)
    assert reproduce(tmp_path, build_document(), "--against", str(tmp_path / "earlier.json")) == 2
    assert "earlier.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "value"), [("warmup", -1), ("warmup", float("inf")), ("values", {"time": [10**400] * 6}), ("values", [1])]
)
def test_earlier_file_with_numbers_that_are_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, value: object
) -> None:
    record = record_of(read_document(json.dumps(build_document()).encode()), build_here())
    record["results"][0][part] = value
    (tmp_path / "earlier.json").write_text(json.dumps(record))
    assert reproduce(tmp_path, build_document(), "--against", str(tmp_path / "earlier.json")) == 2
    assert "earlier.json cannot be used" in capsys.readouterr().err


def test_unusable_document_ends_with_a_status_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, {}) == 2
    assert "no tidemark-case document" in capsys.readouterr().err


def build_here(outcome: str = "measured", **facts: Any) -> Here:
    system = probe_system(Path("/nonexistent"))
    values = {"time": (9.0, 100.0, 102.0, 101.0)} if outcome == "measured" else {}
    result = CaseResult("mm-basic", "v", "copy", "all", outcome, reason="because", warmup=1, values=values)
    changed = type(system)(**{**vars(system), "flags": ("erms",), **facts})
    return Here(facts=changed, boot_id="boot-1", version="v", results=(result,), shortcomings=())


def shown(here: Here, **document: Any) -> str:
    published = read_document(json.dumps(build_document(**document)).encode())
    return "\n".join(table(published, here))


def test_running_kernel_is_recognised_by_its_build_id() -> None:
    assert "the patched kernel that box-zen5 measured" in shown(build_here(kernel_build_id="cd" * 20))
    assert "none of the kernels that were measured" in shown(build_here(kernel_build_id="ee" * 20))
    assert "shows no build id" in shown(build_here(kernel_build_id=""))


def test_table_shows_median_range_flags_and_what_is_not_evidence() -> None:
    said = shown(build_here(virtual=True, hypervisor="kvm"))
    assert "101 (100 to 102, 3 runs)" in said
    assert "virtual (kvm): not evidence" in said
    assert "against box-zen5 (zen5) this machine lacks fsrm" in said


def test_case_that_gave_nothing_says_why() -> None:
    said = shown(build_here("skipped"))
    assert "all: skipped: because" in said


def test_cells_without_numbers_and_unchanged_ones_are_shown() -> None:
    empty = dict.fromkeys(("base_mean", "patched_mean", "ratio", "ratio_low", "ratio_high", "mde"))
    cells = [
        build_cell(verdict="inconclusive", reason="too few boots", **empty),
        build_cell(verdict="unchanged", ratio=1.001),
    ]
    said = shown(build_here(), cells=cells)
    assert "box-zen5: inconclusive: too few boots" in said
    assert "unchanged (would have seen 1.2 %)" in said


def test_record_keeps_the_evidence_of_what_failed_and_reads_back(tmp_path: Path) -> None:
    published = read_document(json.dumps(build_document()).encode())
    (tmp_path / "record").write_text(json.dumps(record_of(published, build_here())))
    record = read_record(tmp_path / "record")
    assert record.median("all", "time") == 101.0
    assert record.median("all", "none") is None
    failed = record_of(published, build_here("timeout"))["results"][0]
    assert (failed["outcome"], failed["values"]) == ("timeout", {})
