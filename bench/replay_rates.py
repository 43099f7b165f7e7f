"""The same series over and over: how often chance is taken for a change, and how often the published one is found."""

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bench.replay_player import Player
from bench.table import table
from server.detection.models import Comparison, Finding
from server.sources.models import Series

_Z95 = 1.959964
_CHANGES = ("regressed", "improved")
MOST_FALSE, LEAST_SPLIT = 0.05, 0.97


@dataclass(frozen=True)
class Rate:
    """`hits` of `tries`, with what they must be."""

    what: str
    hits: int
    tries: int
    holds: bool
    wanted: str
    seconds: float
    kinds: Counter[str]

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, self.tries)


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """A 95 % interval of a share (Wilson, J. Am. Statist. Assoc. 22, 1927)."""
    if not tries:
        return 0.0, 1.0
    share, z2 = hits / tries, _Z95**2
    middle = (share + z2 / (2 * tries)) / (1 + z2 / tries)
    half = _Z95 / (1 + z2 / tries) * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def false_alarms(player: Player, name: str, tries: int, *, progress: Callable[[str], None]) -> Rate:
    """Series without any effect: those that end with a cell that regressed or improved."""

    def is_hit(series: Series, _finding: Finding | None) -> bool:
        return Comparison.objects.filter(session__series=series, verdict__in=_CHANGES).exists()

    hits, kinds, seconds = _play(player, name, tries, is_hit, progress)
    what, wanted = "no effect anywhere: families with a changed cell", f"<= {MOST_FALSE:.0%}"
    return Rate(what, hits, tries, hits <= MOST_FALSE * tries, wanted, seconds, kinds)


def splits(player: Player, name: str, tries: int, *, progress: Callable[[str], None]) -> Rate:
    """Series with the published effect: those that end as a split."""

    def is_hit(_series: Series, finding: Finding | None) -> bool:
        return finding is not None and finding.kind == Finding.Kind.SPLIT

    hits, kinds, seconds = _play(player, name, tries, is_hit, progress)
    what, wanted = "published effect: findings that are split", f">= {LEAST_SPLIT:.0%}"
    return Rate(what, hits, tries, hits >= LEAST_SPLIT * tries, wanted, seconds, kinds)


def _play(
    player: Player,
    name: str,
    tries: int,
    is_hit: Callable[[Series, Finding | None], bool],
    progress: Callable[[str], None],
) -> tuple[int, Counter[str], float]:
    began, hits, kinds = time.monotonic(), 0, Counter[str]()
    for number in range(1, tries + 1):
        finding = player.play(name, number)
        series = Series.objects.filter(mailing_list__name=name).latest("pk")
        hits += is_hit(series, finding)
        kinds[f"{finding.kind}, {finding.state}" if finding else "no finding"] += 1
        progress(f"{name}: {number} of {tries}, {hits} hits, {(time.monotonic() - began) / number:.1f} s each")
    return hits, kinds, time.monotonic() - began


def rates_table(rates: list[Rate]) -> str:
    rows = []
    for rate in rates:
        low, high = rate.interval
        share = f"{rate.hits / rate.tries:.1%}"
        interval = f"{low:.1%} to {high:.1%}"
        kinds = ", ".join(f"{count} {kind}" for kind, count in rate.kinds.most_common())
        figures = [f"{rate.hits} of {rate.tries}", share, interval, rate.wanted, "ok" if rate.holds else "FAIL"]
        rows.append([rate.what, *figures, f"{rate.seconds / max(1, rate.tries):.1f} s", kinds])
    return table(["", "seen", "share", "95 % interval", "bar", "", "each", "findings"], rows)
