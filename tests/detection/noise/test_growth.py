"""Whether a machine became noisier, from its A/A changes alone."""

import random

from server.detection.noise.drift import FEWEST_TRIALS, Changes, growth


def trials(number: int, *, cells: int = 20, times: float = 1.0, seed: int = 0) -> list[Changes]:
    numbers = random.Random(seed)  # noqa: S311 (noise, no secret)
    return [
        {(cell, 0, 0): times * numbers.gauss(0, 0.001 * (1 + cell)) for cell in range(cells)} for _ in range(number)
    ]


def test_a_machine_three_times_as_noisy_is_suspicious_at_once() -> None:
    found = growth(trials(20), trials(1, times=3.0, seed=1)[0])
    assert found is not None
    assert found.is_suspicious
    assert 2 < found.times < 5


def test_a_machine_as_it_was_is_not() -> None:
    suspicious = 0
    for seed in range(40):
        *history, newest = trials(21, seed=seed)
        found = growth(history, newest)
        suspicious += found is not None and found.is_suspicious
    assert suspicious <= 1


def test_one_cell_gone_wild_is_not_the_machine() -> None:
    *history, newest = trials(21)
    found = growth(history, {**newest, (3, 0, 0): 2.0})
    assert found is not None
    assert not found.is_suspicious


def test_nights_that_differ_anyway_ask_for_more_than_equal_ones() -> None:
    noisy = trials(1, times=3.0, seed=1)[0]
    numbers = random.Random(2)  # noqa: S311 (noise, no secret)
    uneven = [trials(1, times=2 ** numbers.gauss(0, 1), seed=seed)[0] for seed in range(10, 30)]
    steady, changeable = growth(trials(20), noisy), growth(uneven, noisy)
    assert steady is not None
    assert changeable is not None
    assert steady.is_suspicious
    assert not changeable.is_suspicious


def test_too_short_a_history_says_nothing() -> None:
    assert growth(trials(FEWEST_TRIALS - 1), trials(1, times=9.0)[0]) is None


def test_too_few_cells_say_nothing() -> None:
    assert growth(trials(30, cells=4), trials(1, cells=4, times=9.0)[0]) is None


def test_cells_that_never_vary_are_left_out() -> None:
    still = [{(cell, 0, 0): 0.0 for cell in range(20)} for _ in range(20)]
    assert growth(still, {(cell, 0, 0): 0.001 for cell in range(20)}) is None
