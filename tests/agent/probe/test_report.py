"""`tidemark-agent probe` as people and programs call it."""

import json
from pathlib import Path

import pytest
from tidemark_agent.__main__ import main
from tidemark_agent.probe.facts import size

from tests.agent.probe.machines import amd, arm, intel
from tests.agent.probe.machines.parts import Files, write_tree


def said_by(root: Path, files: Files, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["probe", "--root", str(write_tree(root, files)), *words]) == 0
    return capsys.readouterr().out


def test_table_has_a_line_for_each_thing_that_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said_by(tmp_path, amd.zen5_with_cxl(), capsys).splitlines()
    assert lines[0] == "machine         zen5 (physical)"
    assert "node 1          cxl, 125.9 GiB, no CPUs, distances 255 10, tier 22" in lines
    assert "copies by       rep_good, erms, fsrm, no fzrm, fsrs, no fsrc" in lines
    assert not [line for line in lines if line.startswith(("mitigation", "board", "clock"))]


def test_table_says_why_it_does_not_say_physical(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said_by(tmp_path, arm.cortex_a15(), capsys).splitlines()
    assert lines[:2] == [
        "machine         unknown-arm-41-c0f (virtual or physical: not known)",
        "doubt           arm is not a supported architecture",
    ]


def test_table_names_the_core_types_of_a_hybrid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said_by(tmp_path, intel.alder_lake(), capsys)
    assert "core type       golden-cove: CPUs 0-3\ncore type       gracemont: CPUs 4-5\n" in text
    assert "L3 cache        1 x 20 MiB, 8 ways, of CPUs 0-5" in text


def test_json_holds_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(said_by(tmp_path, arm.big_little(), capsys, "--json"))
    assert told["core_types"] == [{"name": "cortex-a76", "cpus": "4-7"}, {"name": "cortex-a55", "cpus": "0-3"}]
    assert told["cpu_kinds"][1]["flags"] == ["dcpop"]
    assert told["boost"] is None
    assert set(told["fingerprint_parts"]) == {"cpu", "memory", "firmware", "board"}


def test_directory_without_a_system_is_no_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--root", str(tmp_path), "--json"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"tidemark-agent: {tmp_path} holds no system: there is no proc in it\n")


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (32 << 20, "32 MiB"), (3 << 40, "3072 GiB")]
)
def test_sizes_are_written_as_people_write_them(count: int, text: str) -> None:
    assert size(count) == text
