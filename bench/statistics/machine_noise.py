"""How often machines that did not change are quarantined for drift, and how soon noisier ones are.

    python -m bench.statistics.machine_noise [--tries 4000] [--seed 5]

Simulated A/A trials: a machine's cells have noise of different sizes; after some nights of history it shows two more,
as before or some times as noisy. Beside it, how often the next change of a cell exceeds its 95th percentile, and how
many machines that were quarantined come back by themselves, by how noisy they still are.
"""

import argparse
import itertools
import math
from collections.abc import Callable

import numpy as np

from server.detection.noise.drift import Changes, growth
from server.detection.trials.effects import change_95

_Noise = Callable[[np.random.Generator, int], np.ndarray]
_WILD = 0.1
# How the cells of one night hang together, in units of their own size.
NIGHTS: dict[str, _Noise] = {
    "independent": lambda rng, cells: rng.normal(size=cells),
    "heavy tails (t, 4)": lambda rng, cells: rng.standard_t(4, size=cells),
    "half in common": lambda rng, cells: math.sqrt(0.5) * (rng.normal() + rng.normal(size=cells)),
    "nights differ by 30 %": lambda rng, cells: rng.normal(size=cells) * math.exp(0.3 * rng.normal()),
}
CHANGES: dict[str, _Noise] = {
    "normal": lambda rng, number: rng.normal(size=number),
    "t, 3": lambda rng, number: rng.standard_t(3, size=number),
    "one in ten is 5 times": lambda rng, number: rng.normal(size=number) * np.where(rng.random(number) < _WILD, 5, 1),
}
CELLS, HISTORIES, GROWN, KNOWN = (8, 30), (15, 20, 40), (2.0, 3.0, 5.0), (8, 12, 18, 19, 30, 60, 200)
STILL, _BEFORE, _TRIED = (1.0, 1.5, 2.0, 3.0), 20, 10
# Of the tries, since power needs no four digits.
_POWER_SHARE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--tries", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    print(
        "cells of a night         cells  nights before  quarantined   as noisy: " + "  ".join(f"x{g:g}" for g in GROWN)
    )
    for name, night in NIGHTS.items():
        for cells in CELLS:
            for history in HISTORIES:
                false = _share(rng, night, (cells, history), 1.0, options.tries)
                found = [_share(rng, night, (cells, history), g, options.tries // _POWER_SHARE) for g in GROWN]
                powers = "  ".join(f"{one:.2f}" for one in found)
                print(f"{name:24} {cells:5}  {history:13}  {100 * false:9.3f} %            {powers}", flush=True)
    print(
        "\ncells of a night         cells  back within 10 trials, 20 nights before: "
        + ", ".join(f"x{g:g}" for g in STILL)
    )
    for name, night in NIGHTS.items():
        for cells in CELLS:
            back = [_back(rng, night, cells, times, options.tries // _POWER_SHARE) for times in STILL]
            print(f"{name:24} {cells:5}  " + "  ".join(f"{one:.2f}" for one in back), flush=True)
    print("\nchanges known  beyond the 95th percentile: " + ", ".join(CHANGES))
    for known in KNOWN:
        shares = [100 * _beyond(rng, draw, known, options.tries) for draw in CHANGES.values()]
        print(f"{known:13}  " + "  ".join(f"{share:.1f} %" for share in shares))


def _share(rng: np.random.Generator, night: _Noise, size: tuple[int, int], times: float, tries: int) -> float:
    """How many machines are quarantined that become so many times as noisy."""
    cells, nights = size
    found = 0
    for _ in range(tries):
        sizes = 0.005 * np.exp(rng.normal(size=cells))
        history = [_trial(night(rng, cells) * sizes) for _ in range(nights)]
        two = [growth(history, _trial(times * night(rng, cells) * sizes)) for _ in range(2)]
        found += all(one is not None and one.is_suspicious for one in two)
    return found / tries


def _back(rng: np.random.Generator, night: _Noise, cells: int, times: float, tries: int) -> float:
    """How many quarantined machines that are so many times as noisy as they were are released within _TRIED trials."""
    released = 0
    for _ in range(tries):
        sizes = 0.005 * np.exp(rng.normal(size=cells))
        history = [_trial(night(rng, cells) * sizes) for _ in range(_BEFORE)]
        found = [growth(history, _trial(times * night(rng, cells) * sizes)) for _ in range(_TRIED)]
        calm = [one is not None and one.is_calm for one in found]
        released += any(one and other for one, other in itertools.pairwise(calm))
    return released / tries


def _trial(logs: np.ndarray) -> Changes:
    return {(cell, 0, 0): float(log) for cell, log in enumerate(logs)}


def _beyond(rng: np.random.Generator, draw: _Noise, known: int, tries: int) -> float:
    beyond = [
        abs(draw(rng, 1)[0]) > math.log1p(change_95((draw(rng, known) * 0.01).tolist())) * 100 for _ in range(tries)
    ]
    return float(np.mean(beyond))


if __name__ == "__main__":
    main()
