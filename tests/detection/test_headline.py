import pytest

from server.detection.findings.vector import UarchVerdict, as_percent, as_ratio, as_speed, headline, kind_of, shorten
from server.lab.models import Microarchitecture


def component(name: str, verdict: str, *, hint: str = "", measured: bool = True) -> UarchVerdict:
    uarch = Microarchitecture(name=name, arch="x86_64", title=name)
    return UarchVerdict(uarch, verdict, hint=hint, measured=measured, mde=0.0099 if verdict == "unchanged" else None)


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
        "inconclusive on zen3 (time of copy), not measured on zen4 (z4: panic)."
    )


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
    assert [as_percent(x) for x in (0.01, 0.0999, 0.35)] == ["1.0 %", "10.0 %", "35 %"]


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
