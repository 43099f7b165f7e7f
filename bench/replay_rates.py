"""The same series over and over: how often chance is taken for a change, and how often the published one is found."""

import time
from collections import Counter
from collections.abc import Callable

from bench.replay_player import Player
from bench.replay_shares import Rate
from server.detection.models import Comparison, Finding
from server.sources.models import Series

_CHANGES = ("regressed", "improved")
MOST_FALSE, LEAST_SPLIT = 0.05, 0.97


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
