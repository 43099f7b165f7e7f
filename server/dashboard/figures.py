"""Numbers as text: columns line up at the decimal point, ratios are patched / base, percentages carry their sign."""

import math
from collections.abc import Iterable

NONE = "\N{EM DASH}"
_NBSP = "\N{NO-BREAK SPACE}"
_MINUS = "\N{MINUS SIGN}"
# A column shows its smallest value with about this many digits, and never more decimals than three.
_DIGITS = 4
_MOST_DECIMALS = 3


def decimals_for(values: Iterable[float | None]) -> int:
    """How many decimals a whole column gets, so that all its figures line up."""
    sizes = [abs(v) for v in values if v is not None and math.isfinite(v) and v != 0]
    if not sizes:
        return 1
    magnitude = math.floor(math.log10(min(sizes)))
    # One decimal more than asked for shows the spread of figures in the thousands.
    return min(max(_DIGITS - 1 - magnitude, 1 if magnitude < _DIGITS else 0), _MOST_DECIMALS)


def fixed(value: float | None, decimals: int) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:.{decimals}f}".replace("-", _MINUS)


def ratio(value: float | None) -> str:
    """`1.713x`, as kernel people write a speed-up or its opposite."""
    return NONE if value is None else f"{fixed(value, 3)}x"


def interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{fixed(low, 3)}, {fixed(high, 3)}]"


def change(value: float | None) -> str:
    """The change that a ratio means: 1.713 is `+71.3 %`."""
    if value is None:
        return NONE
    percent = round((value - 1) * 100, 1)
    sign = "+" if percent > 0 else _MINUS if percent < 0 else _NBSP
    return f"{sign}{abs(percent):.1f}{_NBSP}%"


def effect(fraction: float | None) -> str:
    """A size of change without a sign, from a fraction: 0.012 is `1.2 %`."""
    if fraction is None:
        return NONE
    if 0 < fraction < 0.0005:  # noqa: PLR2004 (what one decimal cannot show)
        return f"<0.1{_NBSP}%"
    return f"{fraction * 100:.1f}{_NBSP}%"


def probability(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"  # noqa: PLR2004 (what four decimals cannot show)
