"""Where a change happened, by the votes of all timelines that moved with it."""

from collections.abc import Sequence

import numpy as np

from server.stats.shifts import Trace, trimmed_mean
from server.stats.timelines import Floats, Ints

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
