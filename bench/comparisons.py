"""Comparisons on every set: Tidemark's figures beside those of a t test on boot means."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench import ours
from bench.bars import Figures
from bench.kit import Kit, Pairs, Row, pairs
from bench.ranges import OWN, Ranges
from bench.scores import relative_width, score_pairs

PEER = "t_boot"


@dataclass(frozen=True)
class Compared:
    """Pairs with the predictions of both, and the figures of both."""

    pairs: Pairs
    ours: Sequence[Row]
    theirs: Sequence[Row]
    figures: Figures
    peer_figures: Figures


def compare_set(kit: Kit, seed: int | None, ranges: Ranges = OWN) -> Compared:
    these = pairs(kit, seed, ranges)
    theirs = [kit.baselines.compare_row((row, PEER)) for row in these.rows]
    return _scored(kit, these, ours.compare(these.rows), theirs)


def pooled(kit: Kit, sets: Sequence[Compared]) -> Compared:
    """All sets as one: rates of rare events need many pairs."""
    rows = [row for compared in sets for row in compared.pairs.rows]
    mine = [row for compared in sets for row in compared.ours]
    theirs = [row for compared in sets for row in compared.theirs]
    return _scored(kit, Pairs("pooled", rows), mine, theirs)


def _scored(kit: Kit, these: Pairs, mine: Sequence[Row], theirs: Sequence[Row]) -> Compared:
    peer_figures = score_pairs(kit, these, theirs)
    figures = relative_width(score_pairs(kit, these, mine), peer_figures)
    return Compared(these, mine, theirs, figures, relative_width(peer_figures, peer_figures))
