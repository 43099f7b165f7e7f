"""A cell's figures do not depend, to the last bit, on the other cells that are computed with it."""

import numpy as np
import pytest

from server.stats import Cell, compare


@pytest.mark.parametrize("boots", [2, 8, 9, 12, 16, 70])
@pytest.mark.parametrize("runs", [1, 3, 9])
def test_many_boots_and_runs_give_the_same_one_by_one(boots: int, runs: int) -> None:
    random = np.random.default_rng(boots)
    count = 3 if boots > 16 else 12
    values = 100 * np.exp(
        random.normal(0, 0.01, (count, 2, boots, 1)) + random.normal(0, 0.01, (count, 2, boots, runs))
    )
    places = list(range(0, 2 * boots, 2)), list(range(1, 2 * boots, 2))
    cells = [Cell(list(base), list(patched), "lower", 0.01, 0.0, *places) for base, patched in values]
    assert compare(cells) == [compare([cell])[0] for cell in cells]
