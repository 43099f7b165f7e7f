"""Programs that the operator installed: found where agent.toml says, recorded by hash, or the case is skipped."""

import hashlib
from pathlib import Path

import pytest
from tidemark_agent.cases.programs import CaseResult

from tests.agent.cases.support import CASE, HEAD, METRIC, Bench

EXTERNAL = '[program]\nkind = "external"\nname = "made-up-tool"\nparser = "reader.py"\n'
COMMAND = 'command = ["{program}", "{cpus:all}"]\n'
READER = """
def parse(text: str, case: str) -> list[tuple[str, float]]:
    if not text.startswith("it took "):
        raise ValueError("no time in it")
    return [("time", float(text.split()[2]))]
"""


def tool(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def ran(bench: Bench, script: str, program: str = EXTERNAL, reader: str = READER) -> CaseResult:
    bench.programs = {"made-up-tool": tool(bench.root / "opt" / "tool", script)}
    bench.write(HEAD + program + CASE + COMMAND + METRIC, reader_py=reader)
    return bench.run()


def test_each_run_is_a_process_and_the_program_is_recorded_by_its_hash(bench: Bench) -> None:
    result = ran(bench, 'echo "it took $1 us"')
    assert (result.outcome, result.values) == ("measured", {"time": (1.0, 1.0, 1.0)})
    program = (bench.root / "opt/tool").read_bytes()
    assert result.programs == {"made-up-tool": hashlib.sha256(program).hexdigest()}


def test_absent_program_skips_the_case_and_says_where_to_name_it(bench: Bench) -> None:
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + METRIC, reader_py=READER)
    result = bench.run()
    assert (result.outcome, result.values) == ("skipped", {})
    assert result.reason == "made-up-tool is not installed: [programs] in agent.toml says where it is"


def test_program_in_path_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tool(bench.root / "bin/made-up-tool", 'echo "it took 4 us"').parent), prepend=":")
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + METRIC, reader_py=READER)
    assert bench.run().values == {"time": (4.0, 4.0, 4.0)}


def test_file_below_the_operator_s_directory_runs_there_if_it_must(bench: Bench) -> None:
    tool(bench.root / "opt/suite/case-a", 'cat beside; echo "from $nr_task"')
    (bench.root / "opt/suite/beside").write_text("it took 5\n")
    bench.programs = {"made-up-tool": bench.root / "opt/suite"}
    own = 'file = "case-a"\nenvironment = { nr_task = "{cpus:half}" }\n'
    bench.write(HEAD + EXTERNAL + "in_place = true\n" + CASE + COMMAND + own + METRIC, reader_py=READER)
    result = bench.run()
    assert (result.values, result.evidence) == ({"time": (5.0, 5.0, 5.0)}, "it took 5\nfrom 1\n")
    assert list(result.programs) == ["made-up-tool/case-a"]


@pytest.mark.parametrize("file", ["case-b", "../../../../bin/sh"])
def test_file_that_is_not_below_the_directory_skips_the_case(bench: Bench, file: str) -> None:
    (bench.root / "opt").mkdir()
    bench.programs = {"made-up-tool": bench.root / "opt"}
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + f'file = "{file}"\n' + METRIC, reader_py=READER)
    result = bench.run()
    assert result.outcome == "skipped"
    assert file in result.reason


def test_failure_that_is_only_said_is_a_failure(bench: Bench) -> None:
    program = EXTERNAL + 'failures = ["allocation failed"]\n'
    result = ran(bench, "echo '# Memory allocation failed - too few'; exit 0", program)
    assert (result.outcome, result.reason) == ("failed", "Memory allocation failed - too few")


@pytest.mark.parametrize("status", [0, 1])
def test_program_that_does_not_have_the_case_skips_it(bench: Bench, status: int) -> None:
    program = EXTERNAL + 'absences = ["unknown function"]\n'
    result = ran(bench, f"echo 'Unknown function: movsb'; echo 'There are: a, b'; exit {status}", program)
    assert (result.outcome, result.reason) == ("skipped", "Unknown function: movsb")


def test_output_that_the_parser_refuses_is_garbled_with_its_reason(bench: Bench) -> None:
    result = ran(bench, "echo nothing")
    assert (result.outcome, result.reason) == ("garbled", "garbled output: no time in it")


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0"])
def test_senseless_value_of_a_parser_is_garbled(bench: Bench, value: str) -> None:
    result = ran(bench, f"echo it took {value} us")
    assert (result.outcome, result.values) == ("garbled", {})


def test_two_values_of_one_process_are_garbled(bench: Bench) -> None:
    reader = "def parse(text, case):\n    return [('time', 1.0), ('time', 2.0), ('other', 3.0)]\n"
    result = ran(bench, "echo", reader=reader)
    assert result.reason == "garbled output: 2 good values of time, 1 wanted"


def test_parser_that_breaks_is_ours(bench: Bench) -> None:
    result = ran(bench, "echo", reader="def parse(text, case):\n    return {}['x']\n")
    assert (result.outcome, result.reason) == ("infrastructure", "the agent failed: KeyError('x')")


def test_program_that_cannot_be_run_is_ours(bench: Bench) -> None:
    bench.programs = {"made-up-tool": bench.root / "tool"}
    (bench.root / "tool").write_text("no program")
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + METRIC, reader_py=READER)
    result = bench.run()
    assert result.outcome == "infrastructure"
    assert "Permission denied" in result.reason


def test_program_with_another_hash_than_the_pinned_one_is_not_run(bench: Bench) -> None:
    bench.pins = {"made-up-tool": "0" * 64}
    result = ran(bench, "touch /tmp/never; echo it took 1 us")
    assert result.outcome == "infrastructure"
    assert f"agent.toml pins {'0' * 64}" in result.reason


def test_needed_program_that_is_nowhere_skips_the_case(bench: Bench) -> None:
    bench.programs = {"made-up-tool": tool(bench.root / "tool", "echo it took 1 us")}
    needs = 'needs = { programs = ["no-such-compiler"] }\n'
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + needs + METRIC, reader_py=READER)
    assert bench.run().reason.startswith("needs no-such-compiler, which is neither in agent.toml")


def test_needed_program_that_is_recorded_is_the_one_that_is_found_by_its_name(bench: Bench) -> None:
    here = tool(bench.root / "made-for-this/sort-13", "echo it took 7 us")
    bench.programs = {"made-up-tool": tool(bench.root / "tool", "sort"), "sort": here}
    needs = 'needs = { programs = ["sort"] }\n'
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + needs + METRIC, reader_py=READER)
    result = bench.run()
    assert (result.outcome, result.values) == ("measured", {"time": (7.0, 7.0, 7.0)})
    assert result.programs["sort"] == hashlib.sha256(here.read_bytes()).hexdigest()


def test_need_of_a_pinned_file_is_not_met_by_one_that_is_not_pinned(bench: Bench) -> None:
    source = tool(bench.root / "source.tar", "")
    bench.programs = {"made-up-tool": tool(bench.root / "tool", "echo it took 1 us"), "source": source}
    needs = 'needs = { pinned = ["source"] }\n'
    bench.write(HEAD + EXTERNAL + CASE + COMMAND + needs + METRIC, reader_py=READER)
    assert bench.run().outcome == "skipped"
    bench.pins = {"source": hashlib.sha256(source.read_bytes()).hexdigest()}
    assert bench.run().outcome == "measured"
