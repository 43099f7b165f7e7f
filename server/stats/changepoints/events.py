"""Steps of a machine, not of the code: maintenance, microcode move most of a machine's timelines at once."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from server.stats.changepoints.shifts import Shift, Trace, shift_at, trimmed_mean
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
