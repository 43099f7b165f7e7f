"""How often chance alone would separate machines as well as the best facts do."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Joined:
    """The pairs of statements that separate the target, as (first, second, word), and what else was tried.

    `tried` are the machines of all single statements and, where a pair was found, of pairs, whatever they separate.
    `complete` is false when some pairs that could have counted were not tried.
    """

    pairs: list[tuple[int, int, str]]
    tried: set[int]
    complete: bool


def joined(masks: Sequence[int], target: int, *, most: int) -> Joined:
    """The conjunctions and alternatives of two of `masks` that are true of just the `target` machines.

    Only what is true of all of them can be a part of such a conjunction, and only what is true of no others a part of
    an alternative; of either kind the first `most` are paired. For the chance of finding anything, pairs that would
    separate other machines count as well: of the first `most` masks, those that could have been parts first.
    """
    around = [mask for mask in masks if mask & target == target]
    within = [mask for mask in masks if mask | target == target]
    found = [(a, b, "and") for a, b in combinations(around[:most], 2) if a & b == target]
    found += [(a, b, "or") for a, b in combinations(within[:most], 2) if a | b == target]
    if not found:
        return Joined([], set(masks), max(len(around), len(within)) <= most)
    tried = {*masks, target}
    useful = dict.fromkeys([*around[:most], *within[:most], *masks])
    for first, second in combinations(list(useful)[:most], 2):
        tried |= {first & second, first | second}
    return Joined(found, tried, len(masks) <= most)


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
