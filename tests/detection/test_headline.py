from dataclasses import replace

import pytest

from server.core.rounding import seen_effect
from server.detection.findings.headline import headline
from server.detection.findings.vector import (
    Coverage,
    UarchVerdict,
    as_ratio,
    as_speed,
    kind_of,
    shorten,
)
from server.lab.models import Microarchitecture


def component(name: str, verdict: str, *, hint: str = "", measured: bool = True) -> UarchVerdict:
    uarch = Microarchitecture(name=name, arch="x86_64", title=name)
    coverage = Coverage(told=1, mde=0.0099) if verdict == "unchanged" else Coverage()
    return UarchVerdict(uarch, verdict, hint=hint, measured=measured, coverage=coverage)


def partly(name: str, told: int, untold: int) -> UarchVerdict:
    found = component(name, "unchanged")
    return replace(found, coverage=Coverage(told, untold, mde=0.02, missed=0.06))


@pytest.mark.parametrize(
    ("verdicts", "kind"),
    [
        (["unchanged", "unchanged"], "unchanged"),
        (["unchanged", "inconclusive"], "inconclusive"),
        (["inconclusive"], "inconclusive"),
        ([], "inconclusive"),
        (["regressed", "inconclusive", "unchanged"], "regressed"),
        (["improved", "unchanged"], "improved"),
        (["improved", "regressed"], "split"),
        (["split", "unchanged"], "split"),
    ],
)
def test_kind_is_that_of_the_whole_vector(verdicts: list[str], kind: str) -> None:
    assert kind_of([component(f"u{n}", verdict) for n, verdict in enumerate(verdicts)]) == kind


def test_headline_names_every_uarch_and_starts_with_the_worst() -> None:
    vector = [
        component("nehalem", "unchanged"),
        component("zen1", "unchanged"),
        component("zen3", "inconclusive", hint="time of copy"),
        component("zen4", "inconclusive", hint="z4: panic", measured=False),
        component("zen5", "regressed"),
    ]
    assert headline(vector, identical=False) == (
        "Regressed on zen5, no change on nehalem, zen1 (would have seen 1.0 %), "
        "inconclusive on zen3 (time of copy); not measured on zen4 (z4: panic)."
    )


def test_what_the_lab_could_not_measure_is_a_gap_in_an_all_clear() -> None:
    vector = [
        component("neoverse-n1", "inconclusive", hint="n1: lost power", measured=False),
        component("zen3", "unchanged"),
        component("zen5", "unchanged"),
    ]
    assert kind_of(vector) == "unchanged"
    assert headline(vector, identical=False) == (
        "No change on zen3, zen5 (would have seen 1.0 %); not measured on neoverse-n1 (n1: lost power)."
    )


def test_kernel_that_does_not_run_somewhere_is_no_all_clear() -> None:
    broken = replace(component("zen4", "inconclusive", measured=False), broken=True)
    assert kind_of([component("zen3", "unchanged"), broken]) == "inconclusive"


def test_same_code_clears_nothing_where_what_differs_was_not_measured() -> None:
    same = replace(component("zen3", "unchanged"), unbooted=True)
    missing = component("zen4", "inconclusive", measured=False)
    assert kind_of([same, missing]) == "inconclusive"
    assert kind_of([same, same]) == "unchanged"


def test_headline_of_an_all_clear_counts_what_was_told_and_what_was_not() -> None:
    assert headline([partly("zen3", 28, 22)], identical=False) == (
        "No change on zen3 (28 of 50 cells within 2.0 %; 22 could not be told below 6.0 %)."
    )
    assert headline([partly("zen3", 28, 22), component("zen5", "unchanged")], identical=False) == (
        "No change on zen3, zen5 (29 of 51 cells within 2.0 %; 22 could not be told below 6.0 %)."
    )
    moved = headline([component("zen5", "regressed"), partly("zen3", 28, 22)], identical=False)
    assert moved == (
        "Regressed on zen5, no change on zen3 (28 of 50 cells within 2.0 %; 22 could not be told below 6.0 %)."
    )


@pytest.mark.parametrize(
    ("coverage", "said"),
    [
        (Coverage(), ""),
        (Coverage(told=3, mde=0.014), "would have seen 1.4 %"),
        (Coverage(told=3, mde=0.5, mde_half=0.02), "would have seen 2.0 % in half of the cells, 50 % in all"),
        (
            Coverage(told=45, untold=5, mde=0.5, mde_half=0.02, missed=0.11),
            "45 of 50 cells, half of them within 2.0 %, all within 50 %; 5 could not be told below 11 %",
        ),
        (Coverage(told=3, mde=0.05, mde_half=0.01), "would have seen 5.0 %"),
        (Coverage(untold=1, missed=0.3), "its cell could not be told below 30 %"),
        (Coverage(untold=4, blind=4), "all 4 cells could not be told"),
        (
            Coverage(told=1, untold=3, mde=0.01, blind=1, missed=0.3),
            "1 of 4 cells within 1.0 %; 3 could not be told below 30 %, 1 of them not at all",
        ),
    ],
)
def test_coverage_in_words(coverage: Coverage, said: str) -> None:
    assert str(coverage) == said


def test_headline_stays_one_short_line_whatever_the_reason() -> None:
    line = headline(
        [component("zen4", "inconclusive", hint="panic:\n" + "trace " * 200, measured=False)], identical=False
    )
    assert "\n" not in line
    assert len(line) < 160


def test_long_lists_of_names_are_cut_with_their_number() -> None:
    assert shorten(list("abcdefg")) == "a, b, c, d, e and 2 more"
    assert shorten(list("abcde")) == "a, b, c, d, e"


def test_figures_of_a_headline() -> None:
    assert [as_ratio(x) for x in (1.7128, 0.6, 2.0, 0.0123)] == ["1.71x", "0.60x", "2.00x", "0.012x"]
    assert [seen_effect(x) for x in (0.01, 0.0172, 0.0999, 0.352)] == ["1.0 %", "1.8 %", "10.0 %", "36 %"]


@pytest.mark.parametrize(
    ("ratio", "better", "said"),
    [
        (1.7128, "lower", "1.71x slower"),
        (1.231, "lower", "23 % slower"),
        (0.82, "higher", "18 % slower"),
        (0.588, "higher", "41 % slower"),
        (0.5, "lower", "2.00x faster"),
        (0.5, "higher", "2.00x slower"),
        (2.207, "higher", "2.21x faster"),
        (1.049, "lower", "4.9 % slower"),
        (0.951, "higher", "4.9 % slower"),
        (0.951, "lower", "4.9 % faster"),
        (1.5, "none", "1.50x"),
        (0.0, "lower", "0x"),
    ],
)
def test_speed_is_told_by_the_direction_of_the_metric(ratio: float, better: str, said: str) -> None:
    assert as_speed(ratio, better) == said
