import json

import numpy as np
import pytest

from server.stats.rows import compared


def row(ident: str, ratio: float, seed: int) -> dict[str, object]:
    random = np.random.default_rng(seed)
    base, patched = 50 * np.exp(random.normal(0, 0.01, (2, 7, 3)))
    positions = {"base_pos": list(range(0, 14, 2)), "patched_pos": list(range(1, 14, 2))}
    return {"id": ident, "base": base.tolist(), "patched": (ratio * patched).tolist(), **positions}


def test_each_row_has_its_prediction_in_order() -> None:
    equal, slower = list(compared([row("a", 1.0, 1), row("b", 1.1, 2)]))
    assert (equal["id"], slower["id"]) == ("a", "b")
    assert slower["p"] < 0.001
    assert equal["p"] > 0.05
    assert equal["lo"] < 0 < equal["hi"]
    assert slower["est"] == pytest.approx(0.1, abs=0.02)
    assert slower["time_s"] > 0


def test_row_that_cannot_be_judged_is_no_evidence() -> None:
    bad = {"id": "x", "base": [[1.0]], "patched": [[0.0], [2.0]]}
    assert {name: next(compared([bad]))[name] for name in ("p", "lo", "hi")} == {"p": 1.0, "lo": None, "hi": None}


def test_predictions_are_plain_values() -> None:
    assert json.loads(json.dumps(list(compared([row("a", 1.0, 3)]))))[0]["id"] == "a"


def test_wrong_positions_name_the_row() -> None:
    wrong = {"id": "cell-7", "base": [[1.0]], "patched": [[1.0]], "base_pos": [0, 1], "patched_pos": [2]}
    with pytest.raises(ValueError, match="cell-7: 2 positions for 1 boots"):
        list(compared([wrong]))


def test_no_rows_give_no_predictions() -> None:
    assert list(compared([])) == []
