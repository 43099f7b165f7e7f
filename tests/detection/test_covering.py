"""What cells say together of a microarchitecture when some of them could not be told. No database."""

from typing import Any

import pytest

from server.core.reasons import Because
from server.detection.findings.headline import headline
from server.detection.findings.vector import Coverage, UarchVerdict, kind_of, uarch_verdicts
from server.detection.models import Comparison
from server.lab.models import CoreType, Machine, Microarchitecture, Session
from server.results.models import Benchmark, Case, Metric
from server.stats.levels import is_crowd

ZEN3 = Microarchitecture(pk=1, name="zen3")
COPY = Benchmark(pk=1, name="copy")
TIME = Metric(pk=1, name="time", better=Metric.Better.LOWER)
CORES = CoreType(pk=1, name="all")


def session(number: int = 1) -> Session:
    return Session(pk=number, machine=Machine(pk=number, name=f"z3-{number}", uarch=ZEN3))


def cell(number: int, verdict: str, *, of: Session | None = None, **figures: Any) -> Comparison:
    """One that could not be told has an interval from 4 % faster to 5 % slower, and would have seen 6 %."""
    told = {"unchanged": (1.001, 0.996, 1.006, 0.02), "regressed": (1.3, 1.2, 1.4, 0.02)}
    ratio, low, high, mde = told.get(verdict, (1.005, 0.96, 1.05, 0.06))
    given = {"ratio": ratio, "ratio_low": low, "ratio_high": high, "mde": mde, "p_adjusted": 0.9, "min_effect": 0.01}
    case = Case(pk=number, name=f"c{number}", benchmark=COPY)
    return Comparison(
        session=of or session(), case=case, metric=TIME, core_type=CORES, verdict=verdict, **(given | figures)
    )


def leaning(number: int, **figures: Any) -> Comparison:
    return cell(number, "inconclusive", ratio=1.04, ratio_low=1.004, ratio_high=1.08, **figures)


def calm(count: int, first: int = 100) -> list[Comparison]:
    return [cell(first + number, "unchanged") for number in range(count)]


def noisy(count: int, first: int = 200) -> list[Comparison]:
    return [cell(first + number, "inconclusive") for number in range(count)]


def told(cells: list[Comparison]) -> UarchVerdict:
    return uarch_verdicts([ZEN3], cells, ())[0]


def line(cells: list[Comparison]) -> str:
    return headline([told(cells)], identical=False)


def test_noisy_cells_take_nothing_from_an_all_clear_that_counts_them() -> None:
    cells = [*calm(28), *noisy(22)]
    found = told(cells)
    assert (found.verdict, kind_of([found])) == ("unchanged", "unchanged")
    assert found.coverage == Coverage(told=28, untold=22, mde=0.02, mde_half=0.02, missed=0.06)
    assert line(cells) == "No change on zen3 (28 of 50 cells within 2.0 %; 22 could not be told below 6.0 %)."


@pytest.mark.parametrize(("counts", "verdict"), [((2, 2), "unchanged"), ((2, 3), "inconclusive")])
def test_half_of_the_cells_must_be_told(counts: tuple[int, int], verdict: str) -> None:
    assert told([*calm(counts[0]), *noisy(counts[1])]).verdict == verdict


def test_what_was_told_is_counted_where_it_is_not_enough() -> None:
    assert line([*calm(2), *noisy(3)]) == (
        "Inconclusive on zen3 (2 of 5 cells within 2.0 %; 3 could not be told below 6.0 %)."
    )


def test_what_an_interval_reaches_may_be_missed_and_not_only_what_would_have_been_seen() -> None:
    wide = cell(1, "inconclusive", ratio_low=0.8, ratio_high=1.02)
    missed = told([*calm(3), wide]).coverage.missed
    assert missed == pytest.approx(0.25)


def test_cell_that_leans_is_named_and_leaves_the_all_clear() -> None:
    cells = [*calm(5), leaning(1)]
    assert told(cells).verdict == "unchanged"
    assert told(cells).reason.startswith("leans, as chance may: time of c1 (4.0 % slower)")
    assert line(cells) == (
        "No change on zen3 (5 of 6 cells within 2.0 %; 1 could not be told below 8.0 %; "
        "leaning: 4.0 % slower in time of copy/c1)."
    )


def test_cell_that_surely_differs_is_no_all_clear_though_nobody_knows_whether_by_enough() -> None:
    cells = [*calm(20), *noisy(8), leaning(1, p_adjusted=0.03), leaning(2)]
    assert (told(cells).verdict, told(cells).moved[0].name) == ("inconclusive", "time of c1")
    assert line(cells).startswith(
        "Inconclusive on zen3 (may have changed: 4.0 % slower in time of copy/c1; 20 of 30 cells"
    )
    assert "leans, as chance may: time of c2" in told(cells).reason


def test_crowd_that_leans_is_no_all_clear() -> None:
    crowd = [leaning(number) for number in range(1, 6)]
    found = told([*calm(30), *noisy(15), *crowd])
    assert (found.verdict, len(found.differing)) == ("inconclusive", 5)
    assert "and 4 more" in headline([found], identical=False)


@pytest.mark.parametrize(
    ("leaning", "among", "crowd"), [(1, 1, False), (2, 2, True), (2, 20, False), (3, 22, False), (4, 22, True)]
)
def test_how_many_may_lean_by_chance(leaning: int, among: int, *, crowd: bool) -> None:
    assert is_crowd(leaning, among) is crowd


def test_cell_that_a_check_silenced_is_no_all_clear() -> None:
    taken = cell(1, "inconclusive", reason_code=Because.CHECK_FAILED)
    assert told([*calm(9), taken]).verdict == "inconclusive"
    heard_elsewhere = cell(1, "inconclusive", of=session(2))
    assert told([*calm(9), taken, heard_elsewhere]).verdict == "unchanged"


def test_cell_in_question_is_no_all_clear() -> None:
    said = told([*calm(9), cell(1, "regressed"), cell(1, "unchanged", of=session(2))])
    assert (said.verdict, said.hint) == ("inconclusive", "its machines disagree")


def test_change_beside_noisy_cells_is_told_and_they_are_counted() -> None:
    found = told([*calm(2), *noisy(3), cell(1, "regressed")])
    assert (found.verdict, found.coverage.told, found.coverage.untold) == ("regressed", 3, 3)


def test_cells_without_figures_are_counted_apart() -> None:
    blind = cell(1, "inconclusive", ratio=None, ratio_low=None, ratio_high=None, mde=None, p_adjusted=None)
    assert line([*calm(5), *noisy(1), blind]).endswith("2 could not be told below 6.0 %, 1 of them not at all).")


def test_cell_counts_once_whatever_machines_measured_it() -> None:
    both = [cell(number, "unchanged", of=session(machine)) for number in (1, 2) for machine in (1, 2)]
    assert told(both).coverage.told == 2
