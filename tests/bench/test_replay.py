"""The founding case in small, by a description of our own: one series that helps one machine and hurts another."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.kit import KitError
from bench.replay.cases import read_studies
from bench.replay.faults import Sweeps
from bench.replay.report import wilson
from demo.lab.replay.machines import Moment, values_of
from demo.lab.replay.player import playing
from demo.lab.replay.studies import Kernel, kernel_of
from server.detection.models import Comparison, Finding, FindingVerdict


def row(uarch: str, ratio: float, **changes: Any) -> dict[str, Any]:
    plain = {
        "uarch": uarch,
        "benchmark": "folio-copy",
        "parameters": {"direction": "near->far", "folio": "2M"},
        "metric": "throughput",
        "unit": "GB/s",
        "better": "higher",
        "base": 20.0,
        "base_spread": 1.0,
        "patched": 20.0 * ratio,
        "patched_spread": 1.0,
        "spread_kind": "percent",
        "expected_verdict": "improved" if ratio > 1 else "regressed",
        "published_ratio": ratio,
    }
    return plain | changes


def write(folder: Path, *rows: dict[str, Any], **case: Any) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": [{"id": "copies", "title": "mm: Copy at once", "rows": rows, **case}]}))
    return path


@pytest.mark.real
@pytest.mark.django_db(transaction=True)
def test_a_series_that_helps_one_machine_and_hurts_another_ends_as_one_explained_split(tmp_path: Path) -> None:
    studies = read_studies(write(tmp_path, row("zen3", 0.6), row("zen5", 1.9)))
    with playing(studies.values(), seed=1) as player:
        finding = player.play("copies")
        assert player.worker.failures == {}
    assert finding is not None
    assert finding.kind == Finding.Kind.SPLIT
    assert Finding.objects.count() == 1
    assert finding.state in Finding.STANDING
    verdicts = dict(FindingVerdict.objects.values_list("uarch__name", "verdict"))
    assert verdicts == {"zen3": "regressed", "zen5": "improved"}
    texts = [explanation["text"] for explanation in finding.explanations]
    assert any("no fsrm" in text and "no erms" in text for text in texts), texts
    # The first look, at seven boots a side, was enough.
    assert set(Comparison.objects.values_list("base_boots", "patched_boots")) == {(7, 7)}


def test_a_row_that_is_called_unchanged_has_no_effect_in_the_replay(tmp_path: Path) -> None:
    path = write(tmp_path, row("zen3", 1.02, expected_verdict="unchanged"))
    assert read_studies(path)["copies"].rows[0].steps == (1.0,)


def test_a_walk_gives_each_patch_its_step_and_those_worth_nothing_none(tmp_path: Path) -> None:
    walk = {"points": ["baseline", "alloc", "copy"], "jobs_8": {"real": [0, -10.0, -11.0]}}
    compiled = row("zen3", 0.9, benchmark="kernel-compile", metric="real", parameters={"jobs": 8}, better="lower")
    study = read_studies(write(tmp_path, compiled, row("zen5", 2.0), patch_walk_percent_change=walk))["copies"]
    assert study.patches == ("alloc", "copy")
    assert [one.steps for one in study.rows] == [(0.9, 1.0)]


def test_without_published_cases_the_replay_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(KitError, match=r"nothing\.json"):
        read_studies(tmp_path / "nothing.json")


def test_the_same_boot_always_gives_the_same_values(tmp_path: Path) -> None:
    (only,) = read_studies(write(tmp_path, row("zen3", 0.5)))["copies"].rows
    base, patched = Kernel("copies"), Kernel("copies", frozenset({1}))

    def values(kernel: Kernel, position: int) -> list[float]:
        return values_of(only, kernel, Moment(1, "7", position), runs=4, warmup=1)

    assert values(base, 0) == values(base, 0)
    assert values(base, 0) != values(base, 1)
    assert sum(values(patched, 0)) / sum(values(base, 0)) == pytest.approx(0.5, rel=0.1)


def test_files_of_a_commit_tell_what_it_holds() -> None:
    assert kernel_of(["patch-02", "study-copies"]) == Kernel("copies", frozenset({2}))


def test_an_interval_of_a_share_holds_it_even_at_nothing() -> None:
    low, high = wilson(0, 200)
    assert low == pytest.approx(0, abs=1e-9)
    assert high == pytest.approx(0.0188, abs=0.0005)
    assert wilson(194, 200)[0] == pytest.approx(0.936, abs=0.001)


def test_sweeps_are_counted_when_all_of_them_were_done(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    line = "Task {}[0a-1b] succeeded in 0.1s\n"
    log.write_text(line.format("builds.sweep") + line.format("lab.sweep") + line.format("detection.sweep")[:-5])
    now = [0.0]
    sweeps = Sweeps(log, lambda: now[0])
    assert sweeps.done() == 0
    log.write_text(log.read_text() + "0.1s\n" + line.format("builds.sweep"))
    assert sweeps.done() == 1


def test_sweeps_that_a_thawed_worker_does_all_at_once_are_one(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    line = "".join(
        f"Task {name}[0a-1b] succeeded in 0.1s\n" for name in ("builds.sweep", "lab.sweep", "detection.sweep")
    )
    now = [0.0]
    sweeps = Sweeps(log, lambda: now[0])
    log.write_text(line * 6)
    assert sweeps.done() == 1
    now[0] = 0.5
    log.write_text(line * 10)
    assert sweeps.done() == 1
    now[0] = 5.0
    log.write_text(line * 11)
    assert sweeps.done() == 2
