import numpy as np
import pytest

from server.stats.cells import Cell
from server.stats.shapes import padded, shape_of
from server.stats.summaries import summarise
from server.stats.variances import split


def of(cells: list[Cell]) -> tuple[float, float]:
    shape = shape_of(cells[0])
    found = split(summarise(padded(cells, shape), shape))
    assert found is not None
    return float(found[0].mean()), float(found[1].mean())


@pytest.mark.parametrize("runs", [(3, 3, 3, 3, 3), (1, 2, 3, 4, 5)])
def test_variances_of_boots_and_runs_are_told_apart(runs: tuple[int, ...]) -> None:
    random = np.random.default_rng(6)

    def arm() -> list[np.ndarray]:
        return [100 * np.exp(random.normal(0, 0.03) + random.normal(0, 0.01, count)) for count in runs]

    boot, run = of([Cell(arm(), arm(), "lower", 0.01) for _ in range(800)])
    assert boot == pytest.approx(0.03**2, rel=0.05)
    assert run == pytest.approx(0.01**2, rel=0.05)


def test_the_change_between_the_arms_is_no_variance_between_boots() -> None:
    boot, run = of([Cell([[1.0, 1.1]] * 3, [[2.0, 2.2]] * 3, "lower", 0.01)])
    assert boot == 0
    assert run == pytest.approx(np.log(1.1) ** 2 / 2)


def test_one_run_in_each_boot_cannot_be_split() -> None:
    cell = Cell([[1.0], [2.0]], [[1.0], [2.0]], "lower", 0.01)
    assert split(summarise(padded([cell], shape_of(cell)), shape_of(cell))) is None
