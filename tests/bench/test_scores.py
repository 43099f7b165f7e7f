import math

import pytest

from bench.kit import Pairs
from bench.statistics.comparisons import rate, rates_table
from bench.table import mean_and_error, relative_width


def pair(number: int, **changes: object) -> dict[str, object]:
    plain = {"id": str(number), "kind": "null", "boots": 7, "samples": 3, "trait": "plain", "icc": 0.3, "effect": 0.0}
    return plain | changes


def prediction(number: int, p: float, low: float = -0.1, high: float = 0.1) -> dict[str, object]:
    return {"id": str(number), "p": p, "lo": low, "hi": high}


def test_mean_and_standard_error_over_sets() -> None:
    means, errors = mean_and_error([{"a": 1.0, "b": 5.0}, {"a": 3.0}])
    assert means == {"a": 2.0, "b": 5.0}
    assert errors["a"] == pytest.approx(1.0)
    assert math.isnan(errors["b"])
    assert mean_and_error([]) == ({}, {})


def test_width_is_relative_to_the_t_interval() -> None:
    figures = relative_width({"median_width": 0.9, "fpr": 0.05}, {"median_width": 1.2})
    assert figures["width"] == pytest.approx(0.75)
    assert figures["fpr"] == 0.05


def test_rate_counts_calls_and_coverage() -> None:
    rows = [pair(0), pair(1), pair(2), pair(3)]
    predictions = [prediction(0, 0.01, 0.02, 0.1), prediction(1, 0.5), prediction(2, 0.9), prediction(3, 0.06)]
    found = rate("all", rows, {str(row["id"]): row for row in predictions})
    assert (found.called, found.covered, found.pairs) == (0.25, 0.75, 4)
    assert found.error == pytest.approx(math.sqrt(0.25 * 0.75 / 4))


def test_an_explicit_rejection_goes_before_the_p_value() -> None:
    assert rate("all", [pair(0)], {"0": prediction(0, 0.5) | {"reject": True}}).called == 1.0


def test_the_table_has_a_line_for_every_group_without_a_change() -> None:
    rows = [pair(0), pair(1, trait="heavy", boots=3, samples=5), pair(2, kind="power", trait="burst")]
    ours = [prediction(number, 0.01) for number in range(3)]
    theirs = [prediction(number, 0.5, -0.2, 0.2) for number in range(3)]
    text = rates_table(Pairs("some", rows), ours, theirs)
    assert "trait: heavy" in text
    assert "design: 3x5" in text
    assert "burst" not in text
    everything = next(line for line in text.splitlines() if line.startswith("all "))
    assert everything.split() == ["all", "2", "1.0000", "0.0000", "1.0000", "0.500", "0.0000"]
