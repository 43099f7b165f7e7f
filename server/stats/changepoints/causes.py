"""Machine or code: events that move most of a machine's timelines at once, which of both explains better what a fleet
does at one place, and when to doubt it.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from server.stats.changepoints.shifts import Shift, Trace, shift_at, trimmed_mean
from server.stats.changepoints.steps import LEAST_EFFECT
from server.stats.changepoints.timeline import Floats, Ints, TimelineValues, median

# Revisions on either side of the first guess that stand for election.
ELECTORATE = 5
# Points on either side that settle the two levels.
LEVEL_POINTS = 20
# A single point counts for at most this many standard deviations: a hiccup must not decide.
CLIP = 3.0
# Sums that differ by less are equal: rounding must not break a tie.
EQUAL = 1e-9


def vote(traces: Sequence[Trace], revision: int) -> int:
    """The revision near the given one that all traces together like best as the first of the new regime.

    Where several are equal, nobody measured between them, and the first that somebody measured is taken.
    """
    if not traces:
        return revision
    candidates = np.arange(revision - ELECTORATE, revision + ELECTORATE + 1)
    total = np.zeros(len(candidates))
    for traced in traces:
        total += _ballot(traced, revision, candidates)
    chosen = int(candidates[np.flatnonzero(total >= total.max() - EQUAL)[-1]])
    places = [(traced, traced.place(chosen)) for traced in traces]
    return min((int(t.revisions[at]) for t, at in places if at < len(t.revisions)), default=revision)


def _ballot(traced: Trace, revision: int, candidates: Ints) -> Floats:
    """Log-likelihood of two levels split at each candidate, less that of a split at the given revision.

    Normal noise with a bounded loss (the influence of a point is bounded as Huber's, Ann. Math. Statist. 35, 1964).
    """
    at = traced.place(revision)
    low, high = traced.span(at, ELECTORATE)
    start, end = max(low, at - LEVEL_POINTS), min(high, at + LEVEL_POINTS)
    if at <= start or end <= at:
        return np.zeros(len(candidates))
    before = trimmed_mean(traced.values[start:at].tolist())
    after = trimmed_mean(traced.values[at:end].tolist())
    losses = [
        np.minimum(np.abs(traced.values[start:end] - level) / traced.noise, CLIP) ** 2 / 2 for level in (before, after)
    ]
    gains = np.concatenate([[0.0], np.cumsum(losses[1] - losses[0])])
    places = np.clip(np.searchsorted(traced.revisions, candidates), start + 1, end - 1) - start
    result: Floats = gains[places] - gains[at - start]
    return result


# A timeline counts as visibly moved from this many standard errors.
VISIBLE = 3.0
# A shift so many times the event's size (and its error) is something else as well, and is left to the code.
ODD_ONE_OUT = 3.0
# Logarithms of floating-point numbers end near here.
LARGEST_LOG = 700.0
LARGEST_NUMBER = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class MachineEvent:
    """A step of a machine at a revision.

    `log_odds` against a change of the code, `moved` of `measured` timelines moved visibly; `shifts` are the log ratios
    after/before that were booked to the event, by the timeline's name (where values have no logarithm, the differences
    in units of the usual value).
    """

    machine: str
    revision: int
    log_odds: float
    moved: int
    measured: int
    shifts: Mapping[str, float]


def book(
    machine: str, log_odds: float, members: Sequence[Trace], revision: int, changed: Mapping[str, float] | None = None
) -> MachineEvent:
    """The event of a machine near a revision; `members` are all its timelines that were measured there.

    `changed` are the log ratios by which the code moved benchmarks of other machines at the same place: a timeline
    that rather does what the code did is left to the code.
    """
    revision = vote(members, revision)
    here = [(t, shift_at(t, revision)) for t in members]
    visible = [abs(shift.effect) for _, shift in here if abs(shift.z) > VISIBLE]
    size = statistics.median(visible or [abs(shift.effect) for _, shift in here])
    return MachineEvent(
        machine=machine,
        revision=revision,
        log_odds=log_odds,
        moved=len(visible),
        measured=len(here),
        shifts={
            t.timeline.name: shift.effect
            for t, shift in here
            if abs(shift.effect) <= ODD_ONE_OUT * (size + shift.error)
            and not _like_the_code(shift, size, (changed or {}).get(t.timeline.benchmark))
        },
    )


def _like_the_code(shift: Shift, size: float, code: float | None) -> bool:
    return code is not None and abs(shift.z) > VISIBLE and abs(shift.effect - code) < abs(abs(shift.effect) - size)


def without(timeline: TimelineValues, revision: int, shift: float) -> TimelineValues:
    """The timeline as if the level had not moved by the shift at the revision."""
    values = timeline.values
    after = (timeline.revisions >= revision) & np.isfinite(values)
    finite = values[np.isfinite(values)]
    if finite.size and float(finite.min()) > 0:
        levelled = np.exp(np.clip(np.log(np.where(after, values, 1.0)) - shift, -LARGEST_LOG, LARGEST_LOG))
    else:
        sizes = np.abs(finite[finite != 0])
        with np.errstate(over="ignore"):
            levelled = values - shift * (median(sizes) if sizes.size else 1.0)
        levelled = np.clip(levelled, -LARGEST_NUMBER, LARGEST_NUMBER)
    return replace(timeline, values=np.where(after, levelled, values))


# Sizes of a change that are tried, as log ratios, equally likely on the logarithmic scale.
SIZES = np.geomspace(0.003, 0.6, 16)
# Events of machines are mostly small: at this size half as likely as at none.
LARGE_EVENT = 0.1
# A change moves different timelines differently: standard deviation of their effects as a share of its size.
VARIETY = 0.4
# Degrees of freedom of Student's t for shifts: drift and modes pass for noise now and then, the tails are heavy.
DEGREES = 6.0
# An error is never taken as smaller than this log ratio: code layout alone moves levels so far.
LEAST_ERROR = 0.0015


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Log likelihoods: `still` and `moved` (timelines,), the latter for any size and direction; `ways` (ways, sizes,
    timelines) for each size when all go up, all down, all get better, all get worse, or each goes its own way.
    `small` (sizes,) is the prior of the sizes of a machine's event.
    """

    still: Floats
    moved: Floats
    ways: Floats
    small: Floats


def likelihoods(effects: Floats, errors: Floats, direction: Floats) -> Likelihoods:
    """Of each timeline (timelines,): log ratio, its standard error, and +1 where more is better, else -1."""
    errors = np.maximum(errors, LEAST_ERROR)
    spread = np.hypot(errors, VARIETY * SIZES[:, None])
    up, down = (log_density(sign * effects - SIZES[:, None], spread) for sign in (1, -1))
    good = np.where(direction > 0, up, down)
    bad = np.where(direction > 0, down, up)
    own_way = np.logaddexp(up, down) - math.log(2)
    weight = 1 / (1 + (SIZES / LARGE_EVENT) ** 2)
    return Likelihoods(
        still=log_density(effects, errors),
        moved=np.logaddexp.reduce(own_way, axis=0) - math.log(len(SIZES)),
        # The last stands twice: nothing is known of the direction in half of all cases, as a rough guess.
        ways=np.stack([up, down, good, bad, own_way, own_way]),
        small=np.log(weight / weight.sum()),
    )


def either(share: Floats | float, moved: Floats, still: Floats) -> Floats:
    """Log likelihood when the given share moves and the others do not."""
    result: Floats = np.logaddexp(np.log(share) + moved, np.log1p(-np.asarray(share)) + still)
    return result


def log_sum(logs: Floats) -> float:
    """Log of the sum of exponentials; -inf for none. (scipy's costs more than all else here.)"""
    highest = float(np.max(logs, initial=-math.inf))
    return highest + math.log(float(np.exp(logs - highest).sum())) if math.isfinite(highest) else highest


def log_density(x: Floats, scale: Floats) -> Floats:
    """Student's t density without its constant, which cancels."""
    result: Floats = -(DEGREES + 1) / 2 * np.log1p((x / scale) ** 2 / DEGREES) - np.log(scale)
    return result


# How likely a benchmark moves on a machine where it moved at the same revision on another one, and in what share of
# these cases by about the same ratio rather than by any other.
SAME_BENCHMARK, ALIKE = 0.6, 0.75
# Fewer points than this after the place, or before it, show no level.
FEWEST_POINTS = 3


def belongs(shift: Shift, expected: float) -> bool:
    """Whether a timeline with this shift more likely moved than not.

    `expected` is the log ratio by which the same benchmark moved elsewhere.
    """
    if shift.points < FEWEST_POINTS or abs(shift.effect) < LEAST_EFFECT:
        return False
    effect, error = np.array([shift.effect]), np.array([shift.error])
    found = likelihoods(effect, error, np.ones(1))
    spread = np.hypot(error, VARIETY * abs(expected))
    alike = float(log_density(effect - expected, spread)[0])
    moved = float(np.logaddexp(math.log(ALIKE) + alike, math.log1p(-ALIKE) + float(found.moved[0])))
    return moved - float(found.still[0]) + math.log(SAME_BENCHMARK / (1 - SAME_BENCHMARK)) > 0


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
class PlaceExplanation:
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


def explain_place(moves: Sequence[Move]) -> PlaceExplanation:
    """Explain each machine by itself (an event, or single timelines that moved on their own) or, with others, by a code
    change that moved the same benchmarks on all of them; all splits worth trying are weighed by Bayes' rule.
    Raises ValueError naming the timeline where a move is not a finite number.
    """
    if not moves:
        return PlaceExplanation({}, frozenset(), frozenset())
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
    return PlaceExplanation(odds, *_changed(place, best))


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


# Shifts of the benchmarks of one machine at the place.
Shifts = Mapping[str, Shift]

# Two machines show the same change when they share so much of all that moved visibly on either. Service of a machine
# does not know which benchmarks a commit touches.
SAME = 0.8
# Where all benchmarks of two machines put one commit differs by no more; two services near each other mostly do.
TOGETHER = 1
# A benchmark is demonstrably still when it moved by less than a third of the usual shift, known to a fifth of it.
STILL_EFFECT, STILL_ERROR = 1 / 3, 1 / 5
# Service moves nearly all benchmarks; with more than this share still, it was the code of one microarchitecture.
MOST_STILL = 0.4


def doubted(
    explanation: PlaceExplanation, machines: Mapping[str, Shifts], places: Mapping[str, int]
) -> PlaceExplanation:
    """The explanation without the events that are rather the code.

    `machines` are the shifts by machine and benchmark, `places` say where (a count of measured revisions) each machine
    with an event would put it.

    An event is the code as well when its machine visibly moves the very benchmarks that the code moved elsewhere, in
    whatever direction (a change may help one microarchitecture and hurt the others), when another machine moves the
    same benchmarks the opposite way at the same revision, or when many of its benchmarks are demonstrably still.
    """
    odds = {machine: one for machine, one in explanation.events.items() if one > 0}
    visible = {machine: _visible(machines.get(machine, {})) for machine in odds}
    split = _opposite(visible, places)
    split |= {
        m for m in odds.keys() - explanation.machines if _alike(visible[m], explanation.benchmarks & machines[m].keys())
    }
    partly = {m for m in odds if visible[m] and _mostly_still(machines[m], visible[m])}
    events = {m: -abs(one) if m in split | partly else one for m, one in explanation.events.items()}
    moved = {benchmark for m in split for benchmark in visible[m]}
    return replace(
        explanation,
        events=events,
        machines=explanation.machines | split,
        benchmarks=explanation.benchmarks | moved,
    )


def _visible(shifts: Shifts) -> dict[str, float]:
    return {benchmark: shift.effect for benchmark, shift in shifts.items() if abs(shift.z) > VISIBLE}


def _alike(moved: Iterable[str], others: Iterable[str]) -> bool:
    one, two = set(moved), set(others)
    return bool(one and two) and len(one & two) >= SAME * len(one | two)


def _opposite(visible: Mapping[str, Mapping[str, float]], places: Mapping[str, int]) -> set[str]:
    """Machines of which another one moved the same benchmarks the other way."""
    found = set()
    for one, two in combinations(visible, 2):
        common = visible[one].keys() & visible[two].keys()
        against = sum((visible[one][b] > 0) != (visible[two][b] > 0) for b in common)
        together = abs(places[one] - places[two]) <= TOGETHER
        if together and _alike(visible[one], visible[two]) and against >= SAME * len(common):
            found |= {one, two}
    return found


def _mostly_still(shifts: Shifts, visible: Mapping[str, float]) -> bool:
    size = statistics.median(abs(effect) for effect in visible.values())
    still = sum(abs(s.effect) < STILL_EFFECT * size and s.error < STILL_ERROR * size for s in shifts.values())
    return still > MOST_STILL * len(shifts)
