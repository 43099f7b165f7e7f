"""Machine or code: which explains better what all timelines of a fleet do at one place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from server.stats.likelihoods import Likelihoods, either, likelihoods, log_sum
from server.stats.timelines import Floats, Ints

Bools = npt.NDArray[np.bool_]

# Shares of a machine's timelines that an event of the machine moves, and how often: mostly nearly all.
EVENT_SHARES = np.array([0.6, 0.75, 0.85, 0.95])
EVENT_SHARE_PRIOR = np.log(np.array([1, 3, 3, 3]) / 10)
# Shares of the benchmarks that a code change moves, and how often: few to many, seldom nearly all.
CODE_SHARES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.9])
CODE_SHARE_PRIOR = np.log(np.array([7, 7, 7, 7, 7, 7, 7, 1]) / 50)
# Where the code changed for a benchmark, the share of the machines in question that show it.
CODE_SHOWS = 0.95
# A timeline moves on its own at a place: chance, drift, a hiccup that lasted.
OWN_SHARE = 0.02
# Before looking, a place where something was nominated is an event of a given machine, or a change of the code.
EVENT_PRIOR, CODE_PRIOR = 0.1, 0.6
# A code change moves all machines, or else each with a chance of one half.
EVERYWHERE = 0.5
# Log odds of a timeline that visibly moved.
LIVELY = 3.0


@dataclass(frozen=True)
class Move:
    """What one timeline did at the place: log ratio and its error. `direction` is +1 where more is better, else -1."""

    machine: str
    benchmark: str
    effect: float
    error: float
    direction: float


@dataclass(frozen=True)
class Explanation:
    """What a place is. `events`: for each machine the log odds that it is an event of the machine.

    `machines` are those that the best code change moved, `benchmarks` what it moved there; empty when none explains it.
    """

    events: Mapping[str, float]
    machines: frozenset[str]
    benchmarks: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Place:
    """Likelihoods of all moves, in the order of machines and benchmarks (their names, sorted).

    `of` says which machine each timeline belongs to. `hits` (machines, benchmarks, ways, sizes) is the log likelihood
    that the code moved the benchmark on the machine, `misses` (machines, benchmarks) that it did not, `lively` whether
    it visibly moved and `there` whether it was measured.
    """

    machines: tuple[str, ...]
    benchmarks: tuple[str, ...]
    likelihoods: Likelihoods
    of: Ints
    hits: Floats
    misses: Floats
    lively: Bools
    there: Bools


def explain_place(moves: Sequence[Move]) -> Explanation:
    """Explain each machine by itself (an event, or single timelines that moved on their own) or, with others, by a code
    change that moved the same benchmarks on all of them; all splits worth trying are weighed by Bayes' rule.
    Raises ValueError naming the timeline where a move is not a finite number.
    """
    if not moves:
        return Explanation({}, frozenset(), frozenset())
    for move in moves:
        if not (math.isfinite(move.effect) and math.isfinite(move.error)):
            raise ValueError(f"{move.benchmark} on {move.machine}: a move of {move.effect} +- {move.error}")
    place = _place(moves)
    event = math.log(EVENT_PRIOR) + np.array([_event(place, place.of == m) for m in range(len(place.machines))])
    quiet = math.log1p(-EVENT_PRIOR) + place.misses.sum(axis=1)
    alone = np.logaddexp(event, quiet)
    splits = _splits(place)
    weights = np.array([_code(place, split) + float(alone[~split].sum()) for split in splits])
    inside = np.array(splits)
    odds = {}
    for m, name in enumerate(place.machines):
        outside = weights[~inside[:, m]] - alone[m]
        odds[name] = log_sum(outside + event[m]) - log_sum(np.concatenate([weights[inside[:, m]], outside + quiet[m]]))
    best = splits[int(np.argmax(weights))]
    return Explanation(odds, *_changed(place, best))


def _place(moves: Sequence[Move]) -> _Place:
    effects, errors = np.array([m.effect for m in moves]), np.array([m.error for m in moves])
    found = likelihoods(effects, errors, np.array([m.direction for m in moves]))
    machines, of = np.unique([m.machine for m in moves], return_inverse=True)
    benchmarks, on = np.unique([m.benchmark for m in moves], return_inverse=True)
    shape = (len(machines), len(benchmarks))
    hits, misses = np.zeros((*shape, *found.ways.shape[:2])), np.zeros(shape)
    lively, there = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    np.add.at(hits, (of, on), np.moveaxis(either(CODE_SHOWS, found.ways, found.still), 2, 0))
    np.add.at(misses, (of, on), either(OWN_SHARE, found.moved, found.still))
    np.logical_or.at(lively, (of, on), found.moved - found.still > LIVELY)
    there[of, on] = True
    return _Place(tuple(map(str, machines)), tuple(map(str, benchmarks)), found, of, hits, misses, lively, there)


def _splits(place: _Place) -> list[Bools]:
    """Sets of machines (as masks) worth trying as those that a code change moved.

    None, all, each alone; those that moved at all or in one benchmark, with and without any one of them.
    """
    count = len(place.machines)
    alone = np.eye(count, dtype=bool)
    groups = np.unique([np.ones(count, dtype=bool), place.lively.any(axis=1), *place.lively.T], axis=0)
    fewer = [group & ~alone[m] for group in groups for m in np.flatnonzero(group)]
    return list(np.unique([np.zeros(count, dtype=bool), *alone, *groups, *fewer], axis=0))


def _event(place: _Place, of: Bools) -> float:
    """Log likelihood of a machine's timelines when nearly all moved alike."""
    found = place.likelihoods
    each = either(EVENT_SHARES[:, None, None, None], found.ways[:, :, of], found.still[of])
    total = log_sum(each.sum(axis=3) + found.small + EVENT_SHARE_PRIOR[:, None, None])
    return total - math.log(len(found.ways))


def _code(place: _Place, split: Bools) -> float:
    """Log of prior and likelihood of a code change that moved the same benchmarks on these machines, or of none.

    Either all benchmarks moved by about the same ratio, or each by its own.
    """
    if not split.any():
        return math.log1p(-CODE_PRIOR)
    everywhere = EVERYWHERE if split.all() else 0.0
    prior = math.log(CODE_PRIOR) + math.log(everywhere + (1 - EVERYWHERE) * 0.5 ** len(split))
    measured = place.there[split].any(axis=0)
    hit, miss = place.hits[split].sum(axis=0)[measured], place.misses[split].sum(axis=0)[measured]
    ways = math.log(hit[0].size)
    single = np.logaddexp.reduce(hit, axis=(1, 2)) - ways
    together = either(CODE_SHARES[:, None, None, None], hit, miss[:, None, None]).sum(axis=1)
    together += CODE_SHARE_PRIOR[:, None, None]
    apart = either(CODE_SHARES[:, None], single, miss).sum(axis=1) + CODE_SHARE_PRIOR
    return prior + float(np.logaddexp(log_sum(together) - ways, log_sum(apart))) - math.log(2)


def _changed(place: _Place, split: Bools) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the machines and of the benchmarks that the code moved on them, whatever the size and way."""
    hit = np.logaddexp.reduce(place.hits[split].sum(axis=0), axis=(1, 2)) - math.log(place.hits[0, 0].size)
    gain = hit - place.misses[split].sum(axis=0)
    machines = frozenset(name for name, chosen in zip(place.machines, split, strict=True) if chosen)
    return machines, frozenset(name for name, one in zip(place.benchmarks, gain, strict=True) if machines and one > 0)
