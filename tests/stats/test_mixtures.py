import numpy as np
import pytest
from scipy import stats as scipy_stats

from server.stats.comparison.mixtures import Mixture, below, ends, two_sided


def mixture(rows: int, *, seed: int = 1, parts: int = 6) -> Mixture:
    random = np.random.default_rng(seed)
    weight = random.dirichlet(np.ones(parts), rows)
    freedom = random.choice([1.0, 2.0, 3.7, 12.0, 200.0], (rows, parts))
    return Mixture(weight, random.normal(0, 2, (rows, parts)), random.uniform(0.1, 3, (rows, parts)), freedom)


def single(centre: float, scale: float, freedom: float) -> Mixture:
    return Mixture(*(np.array([[value]]) for value in (1.0, centre, scale, freedom)))


@pytest.mark.parametrize("freedom", [1.0, 2.0, 5.0, 12.0, 98.0])
@pytest.mark.parametrize("probability", [0.4, 0.025, 0.00025])
def test_quantile_of_one_distribution_is_students(freedom: float, probability: float) -> None:
    expected = 3 + 0.5 * scipy_stats.t.ppf(probability, freedom)
    assert ends(single(3, 0.5, freedom), probability)[0][0] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("probability", [0.45, 0.025, 0.005, 0.00025])
def test_so_much_lies_below_a_quantile(probability: float) -> None:
    mixed = mixture(300)
    assert below(mixed, ends(mixed, probability)[0]) == pytest.approx(np.full(300, probability), rel=1e-6)


def test_quantile_of_far_apart_parts_is_found() -> None:
    apart = Mixture(*(np.array([row]) for row in ([0.02, 0.98], [-1e6, 0.0], [1.0, 1e-3], [3.0, 30.0])))
    assert below(apart, ends(apart, 0.025)[0]) == pytest.approx([0.025], rel=1e-6)


def test_p_value_of_one_distribution_is_students() -> None:
    assert two_sided(single(2.5, 1, 7))[0] == pytest.approx(2 * scipy_stats.t.sf(2.5, 7))
    assert two_sided(single(-2.5, 1, 7))[0] == pytest.approx(2 * scipy_stats.t.sf(2.5, 7))


def test_p_value_in_the_far_tail_is_not_rounded_to_zero() -> None:
    assert 0 < two_sided(single(1, 1e-6, 20))[0] < 1e-100


def test_p_value_of_no_difference_is_one() -> None:
    assert two_sided(single(0, 1, 5))[0] == 1.0


def test_a_cell_does_not_depend_on_its_neighbours() -> None:
    mixed = mixture(50)
    alone = [ends(mixed.take(np.array([row])), 0.025)[0][0] for row in range(50)]
    assert ends(mixed, 0.025)[0].tolist() == alone
