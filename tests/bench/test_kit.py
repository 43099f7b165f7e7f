import json
import sys
from pathlib import Path

import pytest

from bench.kit import KitError, Ranges, open_kit, pairs, recorded, simulated
from bench.statistics import __main__
from bench.statistics.comparisons import without_truth

SIMULATE = """
HISTORY, AB = {"commits": (5, 6)}, {"icc": (0,)}
def histories(cfg, seed): return [{"id": f"h{seed}", "commits": cfg["commits"]}], [{"id": f"n{seed}"}]
def online_tasks(series, null): return [{"id": series[0]["id"], "prefixes": [5]}]
def ab_pairs(cfg, seed): return [{"id": "p", "icc": cfg["icc"]}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "simulate.py").write_text(SIMULATE)
    (tmp_path / "evaluate.py").write_text("")
    (tmp_path / "baselines.py").write_text("")
    (tmp_path / "dev").mkdir()
    for name in ("sim", "sim_null", "online", "perf", "ab"):
        (tmp_path / "dev" / f"{name}.jsonl").write_text(json.dumps({"id": name}) + "\n\n")
    return tmp_path


def test_a_missing_kit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KitError, match=r"evaluate\.py"):
        open_kit(tmp_path / "nowhere")
    assert __main__.main(["--kit", str(tmp_path / "nowhere")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "name its folder with --kit" in captured.err


def test_nothing_is_written_into_the_kit(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    writes = sys.dont_write_bytecode
    open_kit(folder)
    assert sorted(folder.rglob("*")) == before
    assert sys.dont_write_bytecode == writes


def test_development_sets_are_read_and_fresh_ones_made(folder: Path) -> None:
    kit = open_kit(folder)
    assert recorded(kit, "perf").rows == [{"id": "perf"}]
    changing, quiet = simulated(kit, None)
    assert (changing.rows, quiet.rows, changing.tasks) == ([{"id": "sim"}], [{"id": "sim_null"}], [{"id": "online"}])
    changing, quiet = simulated(kit, 7)
    assert (changing.rows, quiet.rows) == ([{"id": "h7", "commits": (5, 6)}], [{"id": "n7"}])
    assert changing.tasks == [{"id": "h7", "prefixes": [5]}]


def test_pairs_of_different_seeds_can_be_pooled(folder: Path) -> None:
    kit = open_kit(folder)
    assert pairs(kit, None).rows == [{"id": "ab"}]
    assert pairs(kit, 7).rows != pairs(kit, 8).rows


def test_ranges_other_than_the_kits_own_can_be_tried(folder: Path) -> None:
    kit = open_kit(folder)
    ranges = Ranges("long", history={"commits": (900, 901)}, pairs={"icc": (0.5,)})
    changing, _ = simulated(kit, 7, ranges)
    assert changing.rows[0]["commits"] == (900, 901)
    assert pairs(kit, 7, ranges).rows[0]["icc"] == (0.5,)


def test_a_detector_does_not_see_the_truth() -> None:
    row = {"id": "a", "values": [1.0], "truth": [], "null": True, "machine_steps": [], "world": "w", "traits": ["ar"]}
    assert list(without_truth([row])) == [{"id": "a", "values": [1.0], "world": "w"}]
