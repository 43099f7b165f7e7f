"""In which order work deserves hosts: urgent work, priority, then fair share between trees and their series.

Fair share is weighted fair queueing in the form of stride scheduling (Waldspurger and Weihl, 1995): a tree's *pass* is

    pass = seconds that hosts gave it in the last 24 hours / 2^priority

and the tree with the smallest pass goes next; inside of it the same holds between its series (all of one weight).
What is given out counts at once with the seconds that it will take as expected, so that many hosts that become free
together are shared, too. A tree that posts a hundred series gets no more than one that posts one. Between two trees
that both always have work, seconds come to stand as 2^priority of one to 2^priority of the other.

Priority comes before fair share: work of a higher one goes first. So that nothing starves, each whole day of waiting
counts as one step of priority.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from server.lab.scheduling.snapshot import Spent, Waiter, WaitingBuild

_W = TypeVar("_W", bound=Waiter)
_Rank = tuple[int, float]

# One day of waiting weighs as much as one step of priority: the work of a night overtakes nothing urgent, and what was
# passed over for a week is at last more important than a tree of seven steps more.
AGING_SECONDS = 86_400
# Weights of 2^-10 to 2^10: beyond a thousandfold a share is nothing, or everything.
_STEEPEST = 10


def weight_of(priority: int) -> float:
    return float(2.0 ** max(-_STEEPEST, min(_STEEPEST, priority)))


class Passes:
    """How much each tree and series has had, by its weight; what is given out now is charged here."""

    def __init__(self, spent: Spent, weights: Mapping[int, float]) -> None:
        self._trees = dict(spent.trees)
        self._series = dict(spent.series)
        self._weights = weights
        self._expected = spent.expected

    def of_tree(self, tree: int) -> float:
        return self._trees.get(tree, 0.0) / self._weights.get(tree, 1.0)

    def of_series(self, series: int) -> float:
        return self._series.get(series, 0.0)

    def charge(self, work: Waiter) -> None:
        self._trees[work.tree] = self._trees.get(work.tree, 0.0) + self._expected
        self._series[work.series] = self._series.get(work.series, 0.0) + self._expected


def fair_order(works: Iterable[_W], passes: Passes, now: datetime, expected: float) -> Iterator[_W]:
    """Yield the works in the order in which they deserve hosts; charge what was given out before asking for the next.

    A piece of work that is yielded and not charged costs its tree nothing. The order is the same whatever the order
    of `works`.
    """
    ranks: dict[_Rank, list[_W]] = defaultdict(list)
    for work in works:
        ranks[rank_of(work, now, expected)].append(work)
    for rank in sorted(ranks):
        yield from _shared(ranks[rank], passes)


def rank_of(work: Waiter, now: datetime, expected: float) -> _Rank:
    """Forced checks; then what must begin now to meet its deadline, the earliest first; then by priority and age."""
    if work.forced:
        return 0, 0.0
    if work.deadline is not None and (work.deadline - now).total_seconds() <= expected:
        return 1, work.deadline.timestamp()
    return 2, -effective_priority(work, now)


def effective_priority(work: Waiter, now: datetime) -> int:
    """The tree's priority and its own, raised by waiting."""
    return work.priority + max(0, int((now - work.since).total_seconds() // AGING_SECONDS))


def _shared(works: list[_W], passes: Passes) -> Iterator[_W]:
    """Works of one rank: the tree with the smallest pass, in it the series with the smallest, in it the oldest."""
    trees: dict[int, list[_W]] = defaultdict(list)
    for work in works:
        trees[work.tree].append(work)
    queues = {tree: _Series(own, passes) for tree, own in trees.items()}
    while queues:
        tree = min(queues, key=lambda one: (passes.of_tree(one), queues[one].oldest, one))
        queue = queues[tree]
        yield queue.pop()
        if not queue.settle():
            del queues[tree]


class _Series(Generic[_W]):
    """The works of one tree, by series. Only the series that was popped can have been charged since."""

    def __init__(self, works: list[_W], passes: Passes) -> None:
        self._passes = passes
        self._works: dict[int, list[_W]] = defaultdict(list)
        # The first of a series stands at the end of its list.
        for work in sorted(works, key=_in_series, reverse=True):
            self._works[work.series].append(work)
        self._heap = [self._entry(series) for series in self._works]
        heapq.heapify(self._heap)
        self.oldest = min(work.since for work in works)

    def _entry(self, series: int) -> tuple[int, float, datetime, int]:
        first = self._works[series][-1]
        # Whose session can begin soonest: a series that lacks one kernel goes before one that lacks two.
        return first.stage, self._passes.of_series(series), first.since, series

    def pop(self) -> _W:
        return self._works[self._heap[0][-1]].pop()

    def settle(self) -> bool:
        """Put the series that was popped where it belongs now; False when no work is left."""
        series = self._heap[0][-1]
        if self._works[series]:
            heapq.heapreplace(self._heap, self._entry(series))
        else:
            heapq.heappop(self._heap)
        return bool(self._heap)


def _in_series(work: Waiter) -> tuple[bool, datetime, int]:
    """The base before what is compared with it, then the oldest."""
    return not (isinstance(work, WaitingBuild) and work.base), work.since, work.id
