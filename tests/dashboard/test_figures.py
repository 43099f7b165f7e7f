import pytest

from server.dashboard.rows import figures

MINUS = "\N{MINUS SIGN}"


def test_column_gets_as_many_decimals_as_its_smallest_value_needs() -> None:
    assert figures.decimals_for([5811.0, 581.25]) == 1
    assert figures.decimals_for([5.5, 5811.0]) == 3
    assert figures.decimals_for([0.0004]) == 3
    assert figures.decimals_for([123456.0]) == 0


def test_column_without_values_still_has_a_width() -> None:
    assert figures.decimals_for([None, 0.0, float("nan"), float("inf")]) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (float("nan"), "—"), (-1.25, f"{MINUS}1.2"), (5811.04, "5811.0")],
)
def test_fixed_shows_a_number_or_a_dash(value: float | None, text: str) -> None:
    assert figures.fixed(value, 1) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.713, "+71.3\xa0%"), (0.6, f"{MINUS}40.0\xa0%"), (1.0, "\xa00.0\xa0%"), (0.99999, "\xa00.0\xa0%"), (None, "—")],
)
def test_change_carries_its_sign_and_rounds_to_none_without_one(ratio: float | None, text: str) -> None:
    assert figures.change(ratio) == text


def test_effect_that_one_decimal_cannot_show_is_not_shown_as_zero() -> None:
    assert figures.effect(0.0001) == "<0.1\xa0%"
    assert figures.effect(0.0) == "0.0\xa0%"
    assert figures.effect(0.012) == "1.2\xa0%"
    assert figures.effect(None) == "—"


def test_ratio_and_interval_have_the_same_decimals() -> None:
    assert figures.ratio(1.70917) == "1.709x"
    assert figures.interval(1.7, 1.71849) == "[1.700, 1.719]"
    assert figures.interval(None, 1.0) == ""


def test_tiny_probability_is_a_bound() -> None:
    assert figures.probability(0.00001) == "<0.0001"
    assert figures.probability(0.0286) == "0.0286"
    assert figures.probability(None) == "—"
