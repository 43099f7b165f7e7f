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
from typing import Any

ALPHA = 0.05
# Makes the g(1), g(2), ... of `_share` add up to 1 (Javanmard and Montanari, section 5).
SHARE_SCALE = 0.07720838


@dataclass(frozen=True)
class Stream:
    """What has to be remembered between two tests: how many there were, and which of them discovered (from 1)."""

    alpha: float = ALPHA
    seen: int = 0
    discoveries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha: {self.alpha!r} is not between 0 and 1")
        ordered = all(a < b for a, b in zip((0, *self.discoveries), (*self.discoveries, self.seen + 1), strict=True))
        if not ordered:
            raise ValueError(f"discoveries {self.discoveries} are not increasing test numbers up to {self.seen}")

    def level(self) -> float:
        """The level of the next test: it discovers when its p-value is at most this."""
        test, wealth = self.seen + 1, self.alpha / 2
        total = wealth * _share(test)
        for i, discovery in enumerate(self.discoveries):
            total += (self.alpha - wealth if i == 0 else self.alpha) * _share(test - discovery)
        return total

    def as_dict(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "seen": self.seen, "discoveries": list(self.discoveries)}


@dataclass(frozen=True)
class Decision:
    p_value: float
    level: float
    discovery: bool


def from_dict(stored: Mapping[str, Any]) -> Stream:
    """The stream as `as_dict` wrote it. Raises ValueError, KeyError or TypeError when it is something else."""
    discoveries = tuple(int(one) for one in stored["discoveries"])
    return Stream(alpha=float(stored["alpha"]), seen=int(stored["seen"]), discoveries=discoveries)


def decide(stream: Stream, p_value: float) -> tuple[Stream, Decision]:
    """Decide on the next test. Raises ValueError for what is no p-value; a test without one is not given at all."""
    if not 0 <= p_value <= 1:
        raise ValueError(f"p-value: {p_value!r} is not between 0 and 1")
    level = stream.level()
    discovery = p_value <= level
    seen = stream.seen + 1
    discoveries = (*stream.discoveries, seen) if discovery else stream.discoveries
    return Stream(stream.alpha, seen, discoveries), Decision(p_value, level, discovery)


def decide_all(stream: Stream, p_values: Iterable[float]) -> tuple[Stream, list[Decision]]:
    """Decide on tests in the order in which they come."""
    decisions = []
    for p_value in p_values:
        stream, decision = decide(stream, p_value)
        decisions.append(decision)
    return stream, decisions


def _share(j: int) -> float:
    """g(j), the share of a wealth that the j-th test after its gain may spend (Javanmard and Montanari 2018)."""
    return SHARE_SCALE * math.log(max(j, 2)) / (j * math.exp(math.sqrt(math.log(j))))
