"""The predicted chance of a verdict, against what really comes of it."""

import numpy as np
import pytest

from server.stats import Cell, StatisticalVerdict
from server.stats.comparison.decisions import Design, chances, looks_of, prospects

DESIGN = Design(looks=(6, 16))


def cells(effects: np.ndarray, *, boots: int, seed: int, min_effect: float) -> list[Cell]:
    generator = np.random.default_rng(seed)
    base = np.exp(generator.normal(0, 0.02, (len(effects), boots, 1)))
    patched = effects[:, None, None] * np.exp(generator.normal(0, 0.02, (len(effects), boots, 1)))
    return [Cell(list(b), list(p), better="lower", min_effect=min_effect) for b, p in zip(base, patched, strict=True)]


def cut(cell: Cell, boots: int) -> Cell:
    return Cell(cell.base[:boots], cell.patched[:boots], better="lower", min_effect=cell.min_effect)


def predicted(sample: list[Cell]) -> list[float]:
    return chances(sample, [looks[-1] for looks in looks_of(sample, DESIGN)], DESIGN)


def test_no_cells_have_no_chances() -> None:
    assert chances([], [], DESIGN) == []


@pytest.mark.parametrize("min_effect", [0.0, 0.01])
def test_predicted_chances_come_true(min_effect: float) -> None:
    """With true effects spread widely and evenly, as the prediction assumes, its mean is the share of verdicts."""
    effects = np.exp(np.random.default_rng(1).uniform(-0.1, 0.1, 500))
    whole = cells(effects, boots=16, seed=2, min_effect=min_effect)
    early = [cut(cell, 6) for cell in whole]
    final = [looks[-1].comparison.verdict is not StatisticalVerdict.INCONCLUSIVE for looks in looks_of(whole, DESIGN)]
    assert np.mean(predicted(early)) == pytest.approx(np.mean(final), abs=0.05)


def test_chances_are_small_near_the_minimum_effect_and_large_far_from_it() -> None:
    effects = np.array([1.0, 1.3])
    near, far = predicted(cells(effects, boots=6, seed=3, min_effect=0.01))
    assert near < 0.3
    assert far > 0.99


def test_an_exact_tie_has_a_small_chance_and_no_error() -> None:
    tie = Cell([[100.0]] * 6, [[101.0]] * 6, better="lower", min_effect=0.01)
    assert 0 <= predicted([tie])[0] <= 1


def test_fewer_boots_left_are_worth_running_for_a_smaller_chance() -> None:
    """And a mere difference, the easier question, is waited for less patiently."""
    design = Design(futility=0.2, futility_of_difference=0.4)
    judged, tested = (
        cells(np.ones(2), boots=6, seed=3, min_effect=0.01)[0],
        cells(np.ones(2), boots=6, seed=3, min_effect=0)[0],
    )
    assert design.least_chance(judged, 0.25) == pytest.approx(0.15)
    assert design.least_chance(judged, 0.75) == pytest.approx(0.05)
    assert design.least_chance(tested, 0.75) == pytest.approx(0.1)


def test_boots_pay_until_the_chance_falls_below_the_least() -> None:
    sample = cells(np.array([1.0, 1.3]), boots=6, seed=3, min_effect=0.01)
    looks = [taken[-1] for taken in looks_of(sample, DESIGN)]
    assert [one.pays for one in prospects(sample, looks, Design(looks=(6, 16), futility=1))] == [False, True]
    assert all(one.pays for one in prospects(sample, looks, Design(looks=(6, 16), futility=0)))
