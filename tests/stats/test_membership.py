import numpy as np
import pytest
from scipy import stats

from server.stats.changepoints.steps import crossing_evidence


@pytest.mark.parametrize(("left", "right"), [((2, 8), (9, 1)), ((9, 1), (2, 8)), ((0, 50), (50, 0)), ((3, 4), (20, 5))])
def test_evidence_is_that_of_fishers_exact_test(left: tuple[int, int], right: tuple[int, int]) -> None:
    a, b = np.repeat([1.0, 0.0], left), np.repeat([1.0, 0.0], right)
    tail = min(stats.fisher_exact([left, right], alternative=side).pvalue for side in ("less", "greater"))
    assert crossing_evidence(a, b, 0.5) == pytest.approx(-np.log10(2 * tail), rel=1e-6)


def test_sides_alike_are_no_evidence() -> None:
    both = np.array([0.0, 1.0] * 10)
    assert crossing_evidence(both, both, 0.5) == 0.0


def test_counts_on_one_side_of_the_middle_only_are_no_evidence() -> None:
    assert crossing_evidence(np.zeros(10), np.zeros(12), 0.5) == 0.0
