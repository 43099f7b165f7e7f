"""With a stand-in for the kit's runner: no library is installed here."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench import kit as bench_kit
from bench.kit import Kit, Peer, PeerError, peer_predictions
from bench.statistics import comparisons

RUNNER = """
import json, pathlib, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
if options["--method"] == "broken":
    print("note: broken: No module named broken")
if options["--method"] == "dying":
    sys.exit(3)
rows = [json.loads(line) for line in open(options["--data"])]
tasks = {row["id"]: row["prefixes"] for row in map(json.loads, open(options["--online"]))}
with open(options["--out"], "w") as out:
    for row in rows:
        print(json.dumps({"id": row["id"], "cps": [], "online": tasks.get(row["id"])}), file=out)
with open(pathlib.Path(__file__).with_name("calls"), "a") as calls:
    calls.write("x")
"""
NONE = Peer("none", "nothing", "library==1")


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kit:
    monkeypatch.setattr(bench_kit, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(bench_kit, "environment_of", lambda _: sys.executable)
    (tmp_path / "baselines.py").write_text(RUNNER)
    empty = ModuleType("empty")
    return Kit(tmp_path, empty, empty, empty)


def calls(kit: Kit) -> int:
    return len((kit.folder / "calls").read_text())


def test_a_peer_is_run_once_for_the_same_rows(kit: Kit) -> None:
    rows, tasks = [{"id": "a"}, {"id": "b"}], [{"id": "b", "prefixes": [3]}]
    first = peer_predictions(kit, NONE, rows, tasks)
    assert first == [{"id": "a", "cps": [], "online": None}, {"id": "b", "cps": [], "online": [3]}]
    assert peer_predictions(kit, NONE, rows, tasks) == first
    assert calls(kit) == 1


def test_other_rows_another_peer_and_another_runner_are_run_anew(kit: Kit) -> None:
    peer_predictions(kit, NONE, [{"id": "a"}])
    peer_predictions(kit, NONE, [{"id": "b"}])
    peer_predictions(kit, Peer("none", "nothing", "library==2"), [{"id": "b"}])
    (kit.folder / "baselines.py").write_text(RUNNER + "\n")
    peer_predictions(kit, NONE, [{"id": "b"}])
    assert calls(kit) == 4


@pytest.mark.parametrize("method", ["broken", "dying"])
def test_a_peer_that_breaks_is_no_peer_that_finds_nothing(kit: Kit, method: str) -> None:
    broken = Peer("broken", method, "library==1")
    for _ in range(2):
        with pytest.raises(PeerError):
            peer_predictions(kit, broken, [{"id": "a"}])


def test_a_broken_peer_is_left_out_of_the_table(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PeerError("no network")

    monkeypatch.setattr(comparisons, "measure", fail)
    assert comparisons.peer(kit, NONE, None) == {}
    assert "none is left out: no network" in capsys.readouterr().err
