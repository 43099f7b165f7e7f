import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats.permutations import permutation_tests


@pytest.mark.parametrize("boots", [(2, 2), (4, 4), (3, 5), (6, 2)])
def test_p_value_is_that_of_scipys_permutation_test(boots: tuple[int, int]) -> None:
    random = np.random.default_rng(5)
    base, patched = random.normal(0, 1, boots[0]), random.normal(0.8, 1, boots[1])
    expected = scipy_stats.permutation_test(
        (base, patched), lambda x, y: abs(np.mean(x) - np.mean(y)), n_resamples=np.inf, alternative="greater"
    ).pvalue
    found = permutation_tests(np.concatenate([base, patched])[None], boots[0])
    assert found == pytest.approx([expected])


def test_equal_values_are_no_evidence() -> None:
    assert permutation_tests(np.zeros((3, 8)), 4) == [1.0] * 3


def test_too_many_relabellings_give_no_p_value() -> None:
    assert permutation_tests(np.zeros((1, 20)), 10) is None


def test_eight_boots_a_side_are_still_gone_through() -> None:
    apart = np.repeat([0.0, 1.0], 8)[None] + np.arange(16) * 1e-3
    assert permutation_tests(apart, 8) == pytest.approx([2 / 12870])
