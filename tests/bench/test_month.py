"""What grows over a month of figures is found, and what only moves, or rises once and stays, is not."""

import pytest

from bench.month.verdict import CONNECTIONS, MEMORY, ORPHANS, DayFigures, days_table, growth, judge

DAYS = range(1, 31)
RESTLESS = [0.0, 3.0, -2.0, 1.0, -3.0, 2.0]


def _month(**figures: list[float]) -> list[DayFigures]:
    """Memory of programs, day by day."""
    return [
        DayFigures(number, 30.0, {(MEMORY, name): values[number - 1] for name, values in figures.items()})
        for number in DAYS
    ]


def _wrong(days: list[DayFigures]) -> list[str]:
    return [line.what for line in judge(days) if not line.right]


def test_what_only_moves_has_not_grown() -> None:
    assert _wrong(_month(web=[200 + RESTLESS[day % 6] for day in DAYS])) == []


def test_what_grows_by_more_than_a_megabyte_a_day_is_named() -> None:
    days = _month(
        web=[100 + 2.0 * day + RESTLESS[day % 6] for day in DAYS],
        beat=[60 + 0.5 * day + RESTLESS[day % 6] for day in DAYS],
    )
    assert _wrong(days) == ["MB: web"]


def test_what_fills_up_in_the_first_days_has_not_grown() -> None:
    assert _wrong(_month(web=[min(100.0 + 20 * day, 250.0) for day in DAYS])) == []


def test_a_third_of_the_days_may_be_anything() -> None:
    figures = [100.0] * 30
    figures[-6:] = [900.0] * 6
    assert growth(figures).by == pytest.approx(0.0)
    assert growth([100 + 2.0 * day for day in DAYS]).by == pytest.approx(38.0)


def test_a_large_program_may_grow_by_a_share_of_itself() -> None:
    assert _wrong(_month(web=[1000 + 1.5 * day for day in DAYS])) == []
    assert _wrong(_month(web=[1000 + 3.0 * day for day in DAYS])) == ["MB: web"]


def test_connections_that_are_kept_are_named() -> None:
    days = [DayFigures(number, 30.0, {(CONNECTIONS, "redis"): 20.0 + number // 4}) for number in DAYS]
    assert _wrong(days) == ["connections: redis"]


def test_one_orphan_on_one_day_is_one_too_many() -> None:
    days = _month(web=[100.0] * 30)
    days[11].named[ORPHANS] = ["artifact 0123456789ab"]
    line = next(line for line in judge(days) if not line.right)
    assert (line.what, line.seen) == ("orphans at the end of any day", "1: day 12: artifact 0123456789ab")


def test_what_came_later_than_the_first_day_counts_from_nothing() -> None:
    days = _month(web=[100.0] * 30)
    for day in days[10:]:
        day.bounded[CONNECTIONS, "postgres of nobody"] = float(day.number)
    assert _wrong(days) == ["connections: postgres of nobody"]
    assert "web MB" in days_table(days)
