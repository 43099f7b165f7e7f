"""`python -m server.stats`: rows in, predictions out, and nothing at all when a line is bad."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from server.stats import __main__ as command_line

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]


def history(name: str, *, step: float = 0.3) -> Row:
    """60 points with a step in the middle, far above the noise."""
    values = 100 * np.exp(np.random.default_rng(1).normal(0, 0.005, 60) + step * (np.arange(60) >= 30))
    return {"id": name, "values": values.tolist()}


def pair(name: str, *, ratio: float = 1.3) -> Row:
    generator = np.random.default_rng(2)
    base, patched = (100 * np.exp(generator.normal(0, 0.01, (7, 3))) for _ in range(2))
    return {"id": name, "base": base.tolist(), "patched": (ratio * patched).tolist()}


def run(monkeypatch: pytest.MonkeyPatch, text: str, *arguments: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return command_line.main(arguments)


def as_lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def predictions(capsys: pytest.CaptureFixture[str]) -> list[Row]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_step_in_a_history_is_predicted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, as_lines(history("a"), history("b", step=0.0)), "cpd") == 0
    first, second = predictions(capsys)
    assert (first["id"], second["id"]) == ("a", "b")
    assert len(first["cps"]) == 1
    assert abs(first["cps"][0] - 30) <= 1
    assert second["cps"] == []
    assert first["time_s"] >= 0


def test_online_prefixes_see_only_their_own_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tasks = tmp_path / "online.jsonl"
    tasks.write_text(as_lines({"id": "a", "prefixes": [28, 50]}, {"id": "not among the rows", "prefixes": [9]}))
    assert run(monkeypatch, as_lines(history("a")), "cpd", "--online", str(tasks)) == 0
    online = predictions(capsys)[0]["online"]
    assert sorted(online) == ["28", "50"]
    assert online["28"] == []
    assert [abs(index - 30) <= 1 for index in online["50"]] == [True]


def test_a_comparison_is_predicted_as_a_change_relative_to_base(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, as_lines(pair("x"), pair("y", ratio=1.0)), "ab") == 0
    first, second = predictions(capsys)
    assert [first["id"], second["id"]] == ["x", "y"]
    assert 0.25 < first["lo"] < first["est"] < first["hi"] < 0.35
    assert first["p"] < 1e-6
    assert second["p"] > 0.01


@pytest.mark.parametrize("command", ["ab", "cpd"])
def test_no_rows_give_no_predictions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert run(monkeypatch, "\n", command) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "no JSON"),
        ("[1, 2]", "an object is expected, not list"),
        ('{"values": [1, 2]}', "no 'id'"),
        ('{"id": 7, "values": [1, 2]}', "'id' is not a text"),
        ('{"id": "z"}', "no 'values'"),
        ('{"id": "z", "values": 3}', "'values' is not a list of numbers"),
        ('{"id": "z", "values": [1, "2"]}', "'values' is not a list of numbers"),
        ('{"id": "z", "values": [1, true, null]}', "'values' is not a list of numbers"),
        ('{"id": "z", "values": [1' + 400 * "0" + "]}", "'values' is not a list of numbers"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, reason: str
) -> None:
    assert run(monkeypatch, as_lines(history("a")) + "\n" + line + "\n", "cpd") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "standard input, line 3: " in captured.err
    assert reason in captured.err


def test_a_pair_without_boots_in_lists_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, as_lines(pair("x"), pair("y") | {"base": [1.0, 2.0]}), "ab") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "line 2: 'base' is not a list of boots" in captured.err


def test_two_rows_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, as_lines(pair("x"), pair("x")), "ab") == 2
    assert "two rows have the id 'x'" in capsys.readouterr().err


def test_bad_tasks_are_named_by_their_own_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a"}\n')
    assert run(monkeypatch, as_lines(history("a")), "cpd", "--online", str(tasks)) == 2
    assert "tasks.jsonl, line 1: no 'prefixes'" in capsys.readouterr().err
    assert run(monkeypatch, as_lines(history("a")), "cpd", "--online", str(tmp_path / "absent")) == 2


def test_only_numpy_and_scipy_are_needed() -> None:
    """In a process of its own, because the tests themselves have loaded the service."""
    script = "import json, sys; import server.stats.__main__; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    own = {name for name in loaded if name.startswith("server.")}
    assert {name for name in own if not name.startswith("server.stats")} == set()
    libraries = {"django", "celery", "rest_framework", "environ", "psycopg", "redis", "structlog", "kombu"}
    assert {name.partition(".")[0] for name in loaded} & libraries == set()


def test_the_module_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "server.stats", "ab"]
    text = as_lines(pair("x"))
    done = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["id"] == "x"
    assert done.stderr == ""


def test_a_full_disk_is_told_and_ends_with_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "server.stats", "ab"],
            input=as_lines(pair("a")),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        "server.stats: the predictions could not be written whole: [Errno 28] No space left on device\n"
    )
