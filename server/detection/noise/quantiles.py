"""How large a change between equal kernels is, at most, 19 times in 20."""

import math
from collections.abc import Sequence

from scipy import special

# With fewer A/A changes of a cell nothing is said about its noise: the factor on their root mean square is then above
# 2.3 (1.96 for a known one), and their own scatter makes it wrong by a quarter as often as not.
FEWEST_CHANGES = 8
# From this many on the 95th percentile is one of the changes, or lies between two of them: with 19, the next change is
# larger than all of them once in 20 times, whatever their distribution.
_ENOUGH_TO_COUNT = 19
_QUANTILE = 0.95
_UPPER = (1 + _QUANTILE) / 2


def change_95(logs: Sequence[float]) -> float:
    """What the next A/A change of a cell stays below 19 times in 20, as a fraction; `logs` are logarithms of ratios.

    From 19 changes on it is read off their sizes at the place 0.95 (n + 1) (Weibull, 1939): right on average for any
    distribution. Fewer leave no such place; then it is Student's quantile at n degrees of freedom times their root
    mean square about zero (equal kernels have no difference), right on average for normal changes. Of fewer than
    FEWEST_CHANGES it is only the largest that was seen, 0 of none.
    """
    sizes = sorted(abs(log) for log in logs)
    number = len(sizes)
    if number < FEWEST_CHANGES:
        return math.expm1(sizes[-1]) if sizes else 0.0
    if number < _ENOUGH_TO_COUNT:
        spread = math.sqrt(sum(size * size for size in sizes) / number)
        return math.expm1(float(special.stdtrit(number, _UPPER)) * spread)
    place = _QUANTILE * (number + 1)
    below = math.floor(place)
    low = sizes[below - 1]
    high = sizes[min(below, number - 1)]
    return math.expm1(low + (place - below) * (high - low))
