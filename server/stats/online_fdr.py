"""A stream of commits has no end, so its false discoveries are kept rare as it goes: each test gets its own level.

The procedure is LORD++ (Ramdas, Yang, Wainwright and Jordan, NeurIPS 30, 2017), an improvement of that of Javanmard and
Montanari (Ann. Statist. 46, 2018). With w the first wealth, t the number of the test, r1 < r2 < ... the discoveries:

    level(t) = w * g(t) + (alpha - w) * g(t - r1) + alpha * (g(t - r2) + g(t - r3) + ...)

For independent tests the share of false discoveries is at most alpha in the mean, at every moment of the stream.
Levels depend on earlier decisions only, so it does not matter whether p-values come one by one or many at once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

ALPHA = 0.05
# Makes the g(1), g(2), ... of `_share` add up to 1 (Javanmard and Montanari, section 5).
SHARE_SCALE = 0.07720838
# Shares are computed for at least this many tests at once.
_FEWEST_SHARES = 1024


@dataclass(frozen=True)
class Stream:
    """What has to be remembered between two tests: how many there were, and which of them discovered (from 1).

    The discoveries are increasing test numbers up to `seen`; what comes from outside is checked by `from_dict`.
    """

    alpha: float = ALPHA
    seen: int = 0
    discoveries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha: {self.alpha!r} is not between 0 and 1")

    def level(self) -> float:
        """The level of the next test: it discovers when its p-value is at most this."""
        return _level(self.alpha, self.seen + 1, np.array(self.discoveries, dtype=np.int64))

    def as_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "seen": self.seen, "discoveries": list(self.discoveries)}


@dataclass(frozen=True)
class Decision:
    p_value: float
    level: float
    discovery: bool


def from_dict(stored: Mapping[str, Any]) -> Stream:
    """The stream as `as_dict` wrote it. ValueError when it is something else, KeyError when a part is missing."""
    alpha, seen, discoveries = stored["alpha"], stored["seen"], stored["discoveries"]
    if type(alpha) not in (int, float):
        raise ValueError(f"alpha: {alpha!r} is no number")
    if type(seen) is not int or seen < 0:
        raise ValueError(f"seen: {seen!r} is no number of tests")
    if not isinstance(discoveries, list | tuple) or not all(type(one) is int for one in discoveries):
        raise ValueError(f"discoveries {discoveries!r} are no list of whole numbers")
    if not all(a < b for a, b in zip((0, *discoveries), (*discoveries, seen + 1), strict=True)):
        raise ValueError(f"discoveries {discoveries} are not increasing test numbers up to {seen}")
    return Stream(alpha=float(alpha), seen=seen, discoveries=tuple(discoveries))


def decide(stream: Stream, p_value: float) -> tuple[Stream, Decision]:
    """Decide on the next test. Raises ValueError for what is no p-value; a test without one is not given at all."""
    after, decisions = decide_all(stream, [p_value])
    return after, decisions[0]


def decide_all(stream: Stream, p_values: Iterable[float]) -> tuple[Stream, list[Decision]]:
    """Decide on tests in the order in which they come; as `decide` for each of them, and with its errors."""
    waiting, count = list(p_values), len(stream.discoveries)
    discoveries = np.empty(count + len(waiting), dtype=np.int64)
    discoveries[:count] = stream.discoveries
    decisions = []
    for test, p_value in enumerate(waiting, start=stream.seen + 1):
        if not 0 <= p_value <= 1:
            raise ValueError(f"p-value: {p_value!r} is not between 0 and 1")
        level = _level(stream.alpha, test, discoveries[:count])
        decisions.append(Decision(p_value, level, p_value <= level))
        if p_value <= level:
            discoveries[count] = test
            count += 1
    return Stream(stream.alpha, stream.seen + len(waiting), tuple(discoveries[:count].tolist())), decisions


def _level(alpha: float, test: int, discoveries: npt.NDArray[np.int64]) -> float:
    """The formula of this module; the sum over the second and later discoveries is one over an array."""
    wealth = alpha / 2
    total = wealth * _share(test)
    if discoveries.size:
        total += (alpha - wealth) * _share(test - int(discoveries[0]))
    if discoveries.size > 1:
        # Rounded up to a power of two, few tables are made, whatever the order of tests.
        shares = _shares(max(_FEWEST_SHARES, 1 << test.bit_length()))
        total += alpha * float(np.sum(shares[test - discoveries[1:]]))
    return total


@lru_cache(maxsize=4)
def _shares(count: int) -> npt.NDArray[np.float64]:
    """`_share` of 0 (which nobody asks for) and of 1 to `count` - 1."""
    return np.array([0.0, *map(_share, range(1, count))])


def _share(j: int) -> float:
    """g(j), the share of a wealth that the j-th test after its gain may spend (Javanmard and Montanari 2018)."""
    return SHARE_SCALE * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j))))
