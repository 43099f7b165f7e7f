import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from server.stats.comparison.verdicts import rank_test


@given(
    st.lists(st.floats(1, 100), min_size=2, max_size=12, unique=True).flatmap(
        lambda together: st.tuples(st.just(together), st.integers(1, len(together) - 1))
    )
)
def test_rank_test_without_ties_is_scipys_exact_mann_whitney(drawn: tuple[list[float], int]) -> None:
    together, cut = drawn
    base, patched = np.array(together[:cut]), np.array(together[cut:])
    expected = scipy_stats.mannwhitneyu(base, patched, method="exact").pvalue
    assert rank_test(base, patched) == pytest.approx(expected)


def test_rank_test_with_ties_is_scipys_permutation_test_of_the_rank_sum() -> None:
    base, patched = np.array([1.0, 1.0, 2.0, 3.0]), np.array([2.0, 3.0, 3.0, 4.0, 4.0])
    ranks = scipy_stats.rankdata(np.concatenate([base, patched]))
    permuted = scipy_stats.permutation_test(
        (ranks[:4], ranks[4:]), lambda x, _y: abs(x.sum() - 4 * ranks.mean()), n_resamples=np.inf, alternative="greater"
    )
    assert rank_test(base, patched) == pytest.approx(permuted.pvalue)


def test_rank_test_of_two_separate_boots_a_side_is_one_third() -> None:
    assert rank_test(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == pytest.approx(1 / 3)


@pytest.mark.parametrize("boots", [2, 30])
def test_rank_test_of_equal_values_is_one(boots: int) -> None:
    assert rank_test(np.ones(boots), np.ones(boots)) == 1.0


def test_rank_test_of_many_boots_uses_the_approximation() -> None:
    random = np.random.default_rng(3)
    base, patched = random.normal(10, 1, 60), random.normal(10.4, 1, 50)
    expected = scipy_stats.mannwhitneyu(base, patched, method="asymptotic").pvalue
    assert rank_test(base, patched) == pytest.approx(expected)
