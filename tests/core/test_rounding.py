"""One rule of rounding: an interval holds its own value, what would have been seen is promised."""

from hypothesis import given
from hypothesis import strategies as st

from server.core.rounding import downward, seen_effect, size_of, upward
from server.dashboard.rows import figures

RATIOS = st.floats(0.01, 90.0)


@given(ratio=RATIOS, low=st.floats(0.0, 0.5), high=st.floats(0.0, 0.5))
def test_interval_holds_its_ratio_as_it_is_shown(ratio: float, low: float, high: float) -> None:
    shown = figures.interval(ratio * (1 - low), ratio * (1 + high)).strip("[]").split(", ")
    assert float(shown[0]) <= float(figures.ratio(ratio).removesuffix("x")) <= float(shown[1])


def test_ends_go_outward_and_what_lies_on_a_digit_stays() -> None:
    assert (downward(0.8449, 3), upward(0.9211, 2)) == ("0.844", "0.93")
    assert (downward(0.1 + 0.2, 1), upward(0.1 + 0.2, 1)) == ("0.3", "0.3")


def test_sizes_are_percents_between_a_half_and_one_and_a_half() -> None:
    assert [size_of(x) for x in (1.0, 0.588, 1.0998, 1.499, 2.213, 0.4, 12.34, 456.7)] == [
        "0.0 %", "41 %", "10 %", "50 %", "2.21x", "2.50x", "12.3x", "457x",
    ]  # fmt: skip


@given(fraction=st.floats(0.0, 5.0))
def test_effect_that_would_have_been_seen_is_never_promised_too_small(fraction: float) -> None:
    assert float(seen_effect(fraction).removesuffix(" %")) >= 100 * fraction - 1e-6
