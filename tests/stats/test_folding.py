"""Arms of more boots than matrices over boots can hold."""

import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats import Cell, compare


def test_many_boots_are_compared_nearly_by_students_t() -> None:
    random = np.random.default_rng(1)
    base, patched = 100 * np.exp(random.normal(0, 0.02, 1000)), 101 * np.exp(random.normal(0, 0.02, 700))
    result = compare([Cell(base[:, None].tolist(), patched[:, None].tolist(), "lower", 0.001)])[0]
    expected = scipy_stats.ttest_ind(np.log(patched), np.log(base)).confidence_interval()
    assert result.ratio_low == pytest.approx(np.exp(expected.low), abs=1e-3)
    assert result.ratio_high == pytest.approx(np.exp(expected.high), abs=1e-3)
    assert (result.base.boots, result.patched.boots) == (1000, 700)


def test_a_hundred_thousand_boots_or_runs_are_no_trouble() -> None:
    values = 100 * np.exp(np.random.default_rng(2).normal(0, 0.02, 100_000))
    boots = compare([Cell(list(values[:, None]), list(values[:, None] * 1.1), "lower", 0.01)])[0]
    runs = compare([Cell([values, values], [values * 1.1, values * 1.1], "lower", 0.01)])[0]
    assert boots.verdict == runs.verdict == "regressed"


@pytest.mark.parametrize("few", [2, 5])
def test_few_boots_against_very_many_keep_the_level(few: int) -> None:
    random = np.random.default_rng(3)
    arms = [[100 * np.exp(random.normal(0, 0.02, (boots, 1))) for boots in (few, 40 * few + 120)] for _ in range(400)]
    results = compare([Cell(list(base), list(patched), "lower", 0.01) for base, patched in arms])
    assert np.mean([(result.p_value or 0) < 0.05 for result in results]) < 0.09


def test_order_of_many_boots_that_do_not_drift_hardly_matters() -> None:
    random = np.random.default_rng(4)
    base, patched = (100 * np.exp(random.normal(0, 0.02, (150, 1))) for _ in range(2))
    plain = compare([Cell(list(base), list(patched), "lower", 0.01)])[0]
    turned = compare([Cell(list(base[::-1]), list(patched), "lower", 0.01)])[0]
    assert turned.ratio_low == pytest.approx(plain.ratio_low, abs=5e-4)
