"""Timelines for the tests of change points."""

import numpy as np

from server.stats.changepoints.nominations import nominate
from server.stats.changepoints.steps import STRICT, Step
from server.stats.changepoints.timeline import Floats, TimelineValues


def noise(seed: int, count: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(count)


def steps(values: Floats, threshold: float = STRICT) -> list[Step]:
    return nominate([TimelineValues("test", values, np.arange(len(values)))], threshold=threshold)[0]


def indices(values: Floats) -> list[int]:
    return [step.index for step in steps(values)]


def stepped(seed: int, count: int, at: dict[int, float], deviation: float = 0.01) -> Floats:
    """Values about 250 with normal noise and changes by the given ratios."""
    logs = deviation * noise(seed, count)
    for index, ratio in at.items():
        logs[index:] += np.log(ratio)
    values: Floats = 250.0 * np.exp(logs)
    return values
