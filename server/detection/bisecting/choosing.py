"""Which revision is measured next. No database in here."""

from collections.abc import Collection, Sequence

# A kernel that is made already saves its build, and a step of a search for several microarchitectures: worth a choice
# this share of the interval off the middle, which costs less than a tenth of a step on average.
_SLACK = 8


def choose(low: int, high: int, candidates: Sequence[int], *, made: Collection[int]) -> int | None:
    """The candidate nearest to the middle between `low` and `high`; one that is made where that is about as near.

    None where nothing is left. What cannot be measured is no candidate, so that the search goes on beside it.
    """
    middle = (low + high) / 2

    def distance(index: int) -> tuple[float, int]:
        return abs(index - middle), index

    nearest = min(candidates, key=distance, default=None)
    if nearest is None:
        return None
    enough = distance(nearest)[0] + (high - low) / _SLACK
    ready = [index for index in candidates if index in made and distance(index)[0] <= enough]
    return min(ready, key=distance, default=nearest)
