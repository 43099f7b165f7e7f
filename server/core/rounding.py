"""One rule of rounding for what pages, headlines and mails say of effects: a value goes to the nearest digit, the ends
of its interval outward, and what would have been seen upward. So an interval holds its own value, and a promise holds.
"""

import math
from collections.abc import Callable

# Between these a percentage says more than a factor.
_LOSS_FACTOR, _FACTOR = 0.5, 1.5
# From here on a percentage needs no tenths, and a factor one decimal; from there on none.
_WHOLE_PERCENT, _MOST_FACTOR_DIGITS = 10, 100


def is_factor(ratio: float) -> bool:
    return ratio >= _FACTOR or 0 < ratio <= _LOSS_FACTOR


def size_digits(size: float, *, factor: bool) -> int:
    """Decimals of so many times, or of so many percent."""
    if factor:
        return 2 if size < _WHOLE_PERCENT else (1 if size < _MOST_FACTOR_DIGITS else 0)
    # 9.98 is 10, not 10.0.
    return 1 if round(abs(size), 1) < _WHOLE_PERCENT else 0


def size_of(ratio: float) -> str:
    """`41 %` or `2.21x`, whatever the direction. `ratio` is above 0."""
    if is_factor(ratio):
        times = max(ratio, 1 / ratio)
        return f"{times:.{size_digits(times, factor=True)}f}x"
    percent = 100 * abs(ratio - 1)
    return f"{percent:.{size_digits(percent, factor=False)}f} %"


def seen_effect(fraction: float) -> str:
    """An effect that would have been seen, or counts: 0.0172 is `1.8 %`."""
    of_hundred = 100 * fraction
    return f"{upward(of_hundred, 1 if of_hundred < _WHOLE_PERCENT else 0)} %"


def downward(value: float, digits: int) -> str:
    return _rounded(value, digits, math.floor)


def upward(value: float, digits: int) -> str:
    return _rounded(value, digits, math.ceil)


def _rounded(value: float, digits: int, how: Callable[[float], int]) -> str:
    if not math.isfinite(value):
        return f"{value}"
    scale = 10**digits
    # What lies on a digit but for the error of a double is not moved to the next.
    near = round(value * scale)
    if abs(near - value * scale) < 1e-9 * max(1.0, abs(near)):
        return f"{near / scale:.{digits}f}"
    return f"{how(value * scale) / scale:.{digits}f}"
