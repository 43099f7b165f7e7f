import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.kit import KitError
from bench.statistics import published
from server.stats import StatisticalVerdict


def row(**changes: Any) -> dict[str, Any]:
    plain = {
        "uarch": "zen9",
        "parameters": {"size": "2M"},
        "better": "higher",
        "base": 10.0,
        "base_spread": 1.0,
        "patched": 20.0,
        "patched_spread": 2.0,
        "spread_kind": "percent",
        "expected_verdict": "improved",
    }
    return plain | changes


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": [{"id": "case", "rows": rows}]}))
    return path


def test_spreads_are_made_relative(tmp_path: Path) -> None:
    path = write(tmp_path, row(), row(spread_kind="sd"))
    (percent, absolute), _ = published.read_cases(path)
    assert percent.spreads == pytest.approx((0.01, 0.02))
    assert absolute.spreads == pytest.approx((0.1, 0.1))


def test_rows_that_cannot_be_simulated_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, row(expected_verdict="counter"), row(base_spread=None), row(expected_verdict="counter"))
    rows, others = published.read_cases(path)
    assert rows == []
    assert others == {"counter": 2, "no spread published": 1}


def test_missing_cases_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KitError, match="no published cases"):
        published.read_cases(tmp_path / "absent.json")
    assert published.main(["--cases", str(tmp_path / "absent.json")]) == 2
    assert "--cases" in capsys.readouterr().err


def test_a_plain_doubling_gets_its_verdict_in_every_session(tmp_path: Path) -> None:
    rows, others = published.read_cases(write(tmp_path, row(), row(better="lower", expected_verdict="regressed")))
    found = published.outcomes(rows, seeds=20, min_effect=0.01)
    assert [outcome.right for outcome in found] == [1.0] * len(found)
    assert [outcome.opposite for outcome in found] == [0.0] * len(found)
    assert published.share_right(found) == 1.0
    assert "none is below that" in published.report(found, others, everything=False)


def test_a_wrong_expectation_fails(tmp_path: Path) -> None:
    rows, others = published.read_cases(write(tmp_path, row(expected_verdict="regressed")))
    found = published.outcomes(rows, seeds=20, min_effect=0.01)
    assert {outcome.mark for outcome in found} == {"FAIL"}
    assert found[0].opposite == 1.0
    assert published.share_right(found) == 0.0
    assert "FAIL" in published.report(found, others, everything=False)


def test_a_change_below_the_noise_may_stay_open(tmp_path: Path) -> None:
    (small,), _ = published.read_cases(write(tmp_path, row(patched=10.15, base_spread=5.0, patched_spread=5.0)))
    outcome = published.judge(small, share=0.3, seeds=20, min_effect=0.01)
    assert not outcome.decidable
    assert outcome.verdicts[StatisticalVerdict.INCONCLUSIVE] > 0.8


def test_unchanged_is_tried_with_equal_means_and_shown_as_published(tmp_path: Path) -> None:
    path = write(tmp_path, row(patched=10.2, base_spread=0.1, patched_spread=0.1, expected_verdict="unchanged"))
    rows, _ = published.read_cases(path)
    assert [row.judged for row in rows] == [True, False]
    found = published.outcomes(rows, seeds=20, min_effect=0.01)
    assert {outcome.mark for outcome in found if outcome.row.judged} == {"pass"}
    assert published.share_right(found) == 1.0


def test_sessions_do_not_depend_on_how_many_are_asked_for(tmp_path: Path) -> None:
    (one,), _ = published.read_cases(write(tmp_path, row()))
    few, many = (list(published.simulate(one, share=0.3, seeds=seeds, min_effect=0.01)) for seeds in (2, 5))
    assert all(np.array_equal(np.array(a.base), np.array(b.base)) for a, b in zip(few, many[:2], strict=True))
    assert not np.array_equal(np.array(few[0].base), np.array(few[1].base))
