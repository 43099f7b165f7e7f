"""Chance against counting by hand and against simulation."""

import itertools
import math

import numpy as np

from server.stats.chance import by_chance, pairs


def single(machines: int) -> list[int]:
    return [1 << place for place in range(machines)]


def test_two_machines_prove_nothing() -> None:
    assert by_chance([0b01, 0b10], single(2), 1) == (1.0, 2)


def test_one_fact_on_many_machines_is_strong() -> None:
    """One flag separates 3 of 6 machines: it or its absence does so in 2 of 20 labelings."""
    assert by_chance([0b000111, 0b111000], single(6), 3) == (2 / 20, 20)
    assert by_chance([0b0111, 0b1000], single(4), 1) == (1 / 4, 4)


def test_equal_separations_count_once() -> None:
    assert by_chance([1, 1, 1], single(4), 1)[0] == 1 / 4


def test_machines_that_change_together_are_one_piece_of_evidence() -> None:
    blocks = [0b0011, 0b1100]
    assert by_chance([0b0011, 0b1100], blocks, 1) == (1.0, 2)
    assert by_chance([0b0001, 0b0111], blocks, 1) == (0.0, 2)


def test_pairs_are_conjunctions_and_alternatives() -> None:
    assert list(pairs([0b011, 0b110])) == [(0b011, 0b110, "and", 0b010), (0b011, 0b110, "or", 0b111)]
    assert list(pairs([1])) == []


def test_chance_is_the_share_of_labelings_that_some_fact_separates() -> None:
    """Eight machines with 12 random flags; all labelings of three changed machines are tried."""
    held = np.random.default_rng(4).integers(0, 2, (12, 8)).astype(bool)
    masks = {sum(1 << i for i in range(8) if row[i]) for row in np.vstack([held, ~held])}
    hit = 0
    for chosen in itertools.combinations(range(8), 3):
        label = np.isin(np.arange(8), chosen)
        hit += any(np.array_equal(row, label) or np.array_equal(~row, label) for row in held)
    assert by_chance(masks, single(8), 3) == (hit / math.comb(8, 3), math.comb(8, 3))
