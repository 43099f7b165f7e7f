"""Chance against counting by hand and against simulation."""

import itertools
import math

import numpy as np

from server.stats.explanation.search import Joined, by_chance, joined


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
    assert joined([0b011, 0b110], 0b010, most=9).pairs == [(0b011, 0b110, "and")]
    assert joined([0b001, 0b100], 0b101, most=9).pairs == [(0b001, 0b100, "or")]
    assert joined([1], 0b11, most=9).pairs == []


def test_all_that_was_tried_counts_for_the_chance() -> None:
    assert joined([0b011, 0b110, 0b101], 0b010, most=9).tried == {0b011, 0b110, 0b101, 0b010, 0b001, 0b100, 0b111}


def test_only_pairs_that_can_separate_the_target_count_against_the_limit() -> None:
    """Many masks that cut the target stand before the two that separate it."""
    useless = [0b01 | other << 2 for other in range(1, 500)]
    found = joined([*useless, 0b0111 | 1 << 12, 0b1011], 0b0011, most=3)
    assert found.pairs == [(0b0111 | 1 << 12, 0b1011, "and")]
    assert 0b0011 in found.tried
    assert not found.complete


def test_a_search_that_was_cut_short_says_so() -> None:
    around = [0b01 | 1 << place for place in range(1, 6)]
    assert joined(around, 0b01, most=1) == Joined([], set(around), complete=False)
    assert joined([0b10, 0b01], 0b11, most=1).complete is False
    assert joined([0b10], 0b01, most=1).complete is True


def test_chance_is_the_share_of_labelings_that_some_fact_separates() -> None:
    """Eight machines with 12 random flags; all labelings of three changed machines are tried."""
    held = np.random.default_rng(4).integers(0, 2, (12, 8)).astype(bool)
    masks = {sum(1 << i for i in range(8) if row[i]) for row in np.vstack([held, ~held])}
    hit = 0
    for chosen in itertools.combinations(range(8), 3):
        label = np.isin(np.arange(8), chosen)
        hit += any(np.array_equal(row, label) or np.array_equal(~row, label) for row in held)
    assert by_chance(masks, single(8), 3) == (hit / math.comb(8, 3), math.comb(8, 3))
