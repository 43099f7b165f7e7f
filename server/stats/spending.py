"""How much of the false-alarm rate a sequential design may have used up after a share of its boots."""

import math

# With -4 the boundaries are nearly those of O'Brien and Fleming (Biometrics 35, 1979): early looks stop for large
# effects only, and the last look keeps nearly the level of a design without early looks.
GAMMA = -4.0
# Beyond this everything is spent at the first look, or nothing before the last; the exponential would overflow.
STEEPEST_GAMMA = 100.0


def spent(fraction: float, alpha: float, *, gamma: float = GAMMA) -> float:
    """The part of `alpha` that may be used up when `fraction` of the information has been seen.

    alpha * (1 - exp(-gamma * t)) / (1 - exp(-gamma)), linear for gamma = 0 (Hwang, Shih and DeCani, Statistics in
    Medicine 9, 1990). The information fraction t is cut to 0 to 1. ValueError for what is no number.
    """
    if not (math.isfinite(fraction) and abs(gamma) <= STEEPEST_GAMMA):
        raise ValueError(f"information fraction {fraction!r} with gamma {gamma!r}: both must be finite, gamma moderate")
    share = min(max(fraction, 0.0), 1.0)
    if gamma == 0:
        return alpha * share
    return alpha * math.expm1(-gamma * share) / math.expm1(-gamma)


def information(base: int, patched: int, planned: int) -> float:
    """The share of a design's information in this many boots, when `planned` boots a side are all of it.

    The variance of a difference of means goes with 1/base + 1/patched, so arms of different size count as their
    harmonic mean. 1 when the plan is fulfilled or exceeded.
    """
    if base <= 0 or patched <= 0:
        return 0.0
    return min(1.0, 2 / (1 / base + 1 / patched) / planned)
