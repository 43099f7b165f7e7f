"""How often chance alone would separate machines as well as the best facts do."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations


def pairs(masks: Sequence[int]) -> Iterator[tuple[int, int, str, int]]:
    """All conjunctions and alternatives of two statements, as (first, second, word, machines)."""
    for first, second in combinations(masks, 2):
        yield first, second, "and", first & second
        yield first, second, "or", first | second


def by_chance(separable: Iterable[int], blocks: Sequence[int], chosen: int) -> tuple[float, int]:
    """The exact p-value of a separation, and the number of ways to choose the machines it rests on.

    Under the null hypothesis the `chosen` blocks that changed are any of the `blocks` with the same probability
    (Fisher's randomisation: The Design of Experiments, 1935). The statistic is whether any of the statements tried
    separates them, so the p-value is the share of choices that some statement separates: all statements tried are
    counted, however alike they are (the single-step correction of Westfall and Young, Resampling-Based Multiple
    Testing, 1993). Machines are bits; `blocks` are disjoint sets of machines that can only change together.
    """
    ways = math.comb(len(blocks), chosen)
    separated = set()
    for mask in set(separable):
        whole = _whole_blocks(mask, blocks)
        if whole is not None and whole.bit_count() == chosen:
            separated.add(whole)
    return len(separated) / ways, ways


def _whole_blocks(mask: int, blocks: Sequence[int]) -> int | None:
    """The blocks of which a set of machines consists, as bits; None when it cuts one."""
    whole = 0
    for place, block in enumerate(blocks):
        part = mask & block
        if part == block:
            whole |= 1 << place
        elif part:
            return None
    return whole
