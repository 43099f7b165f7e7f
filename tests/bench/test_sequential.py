"""The table of the sequential design, on a few rows made here."""

import numpy as np
import pytest

from bench.kit import Row
from bench.statistics.sequential import comparison_table, groups, run
from server.stats.comparison.decisions import Design


def row(kind: str, effect: float, seed: int, **fields: object) -> Row:
    generator = np.random.default_rng(seed)
    base, patched = np.exp(generator.normal(0, 0.005, (2, 16, 1)))
    positions = {"base_pos": list(range(0, 32, 2)), "patched_pos": list(range(1, 32, 2))}
    values = {"base": base.tolist(), "patched": (patched * effect).tolist()}
    return {"kind": kind, "samples": 1, "trait": "plain", "icc": 0.3, **values, **positions, **fields}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    nulls = [row("null", 1.0, seed) for seed in range(6)]
    powers = [row("power", 1.1, 10 + seed, size=0.1) for seed in range(4)]
    return [*nulls, *powers, row("patch", 1.5, 20)]


def test_clear_changes_are_decided_with_the_fewest_boots(rows: list[Row]) -> None:
    outcomes = run(rows, 0.0, Design())
    assert [outcome.boots for outcome in outcomes[6:]] == [4] * 5
    assert all(outcome.last.differs for outcome in outcomes[6:])


def test_rows_are_grouped_by_kind_and_those_without_effect_by_shape(rows: list[Row]) -> None:
    sizes = {name: len(group) for name, group in groups(run(rows, 0.0, Design()))}
    assert sizes == {
        "all": 11,
        "no effect": 6,
        "  1 runs": 6,
        "  plain": 6,
        "  correlation 0.3": 6,
        "effect 10 %": 4,
        "patches": 1,
    }


def test_the_table_has_a_row_for_each_group(rows: list[Row]) -> None:
    outcomes = run(rows, 0.01, Design())
    lines = comparison_table(outcomes, Design()).splitlines()
    assert lines[0].split() == ["pairs", "boots", "differs", "fixed", "verdict", "fixed", "unchanged", "fixed"]
    assert len(lines) == 2 + len(list(groups(outcomes)))
