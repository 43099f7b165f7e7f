import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats.hodges_lehmann import Shifts, shifts


def shifts_of(base: np.ndarray, patched: np.ndarray) -> Shifts:
    found = shifts(base, patched, 0.05)
    assert found is not None
    return found


def test_shift_is_the_median_of_all_differences() -> None:
    found = shifts_of(np.array([[0.0, 1.0, 5.0]]), np.array([[2.0, 4.0]]))
    assert found.shift.tolist() == [np.median([2, 1, -3, 4, 3, -1])]


def test_interval_leaves_out_what_mann_and_whitneys_test_rejects() -> None:
    random = np.random.default_rng(2)
    base, patched = random.normal(0, 1, (1, 7)), random.normal(1, 1, (1, 6))
    interval = shifts_of(base, patched).interval
    assert interval is not None
    for end, outward in zip(interval, (-1e-9, 1e-9), strict=True):
        outside = scipy_stats.mannwhitneyu(patched[0] - end[0] - outward, base[0], method="exact").pvalue
        inside = scipy_stats.mannwhitneyu(patched[0] - end[0] + outward, base[0], method="exact").pvalue
        assert outside <= 0.05 < inside


@pytest.mark.parametrize(("boots", "known"), [(2, False), (3, False), (4, True)])
def test_few_boots_allow_no_interval(boots: int, known: bool) -> None:
    assert (shifts_of(np.zeros((1, boots)), np.zeros((1, boots))).interval is not None) == known


@pytest.mark.parametrize(("boots", "least"), [((7, 7), 0.95), ((25, 20), 0.94)])
def test_interval_holds_the_true_shift_as_often_as_it_says(boots: tuple[int, int], least: float) -> None:
    random = np.random.default_rng(3)
    base, patched = random.standard_t(3, (2000, boots[0])), 0.5 + random.standard_t(3, (2000, boots[1]))
    interval = shifts_of(base, patched).interval
    assert interval is not None
    assert least - 0.01 < np.mean((interval[0] <= 0.5) & (interval[1] >= 0.5)) < 0.98


def test_samples_with_very_many_pairs_have_no_companion() -> None:
    assert shifts(np.zeros((1, 1000)), np.zeros((1, 1000)), 0.05) is None
