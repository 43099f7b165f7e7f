"""A series over and over, a walk, and what must hold after."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from io import StringIO

from django.core.management import CommandError, call_command

from bench.replay.cases import WORTH_NOTHING
from bench.replay.report import Line, Rate, line
from demo.lab.replay.player import Player
from server.detection.bisection.walk import ask_for_walk, walk_of
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Trial
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


NAME = "anon-large-folios"
_BEYOND = 0.02


def walked(player: Player) -> Iterable[Line]:
    """Play the series, ask for its walk, and look at what is said of each patch."""
    finding = player.play(NAME)
    yield Line("anon folios", "split or improved", finding.kind if finding else "no finding", finding is not None)
    if finding is None or finding.series is None:
        return
    ask_for_walk(finding.series, actor="replay")
    player.settle()
    walk = walk_of(finding.series)
    sentences = {row.subject: row.sentence for row in walk.rows} if walk else {}
    study = player.truth.studies[NAME]
    for index, patch in enumerate(study.patches, start=1):
        rows = Comparison.objects.filter(session__trial__key=f"series:{finding.series.pk}:patch:{index}")
        moved = sorted(set(rows.exclude(verdict=Verdict.UNCHANGED).values_list("verdict", flat=True)))
        told = next((text for subject, text in sentences.items() if subject == patch), "no sentence")
        if patch in WORTH_NOTHING:
            right = not moved and rows.exists() and "adds nothing" in told
            yield Line(f"  patch {patch}", "adds nothing", told, right)
        else:
            largest = max(abs(row.steps[index - 1] - 1) for row in study.rows)
            changes = {Verdict.IMPROVED, Verdict.REGRESSED} & set(moved)
            yield Line(f"  patch {patch}", f"moves something ({largest:.0%})", told, bool(changes) or largest < _BEYOND)
    trials = Trial.objects.filter(series=finding.series, purpose=Trial.Purpose.PATCH)
    yield line("  trials of single patches", str(len(study.patches)), str(trials.count()))
    yield line("  findings", "1", str(Finding.objects.filter(series=finding.series).count()))


_MOST_DIFFERENCES = 4000


def failures(player: Player) -> Line:
    """Tasks that ended with an error: a worker lives on, and a sweep asks again, but none of them should."""
    found = player.worker.failures
    for text, count in found.most_common():
        print(f"FAIL: {count} x {text}")
    if found:
        print(player.worker.last_failure)
    return Line("tasks that failed", "0", str(found.total()), not found)


def recomputed() -> Line:
    """Whether everything follows once more from the stored samples."""
    output = StringIO()
    try:
        call_command("recompute", check=True, stdout=output)
    except CommandError as error:
        print(output.getvalue()[:_MOST_DIFFERENCES])
        return Line("computed again from stored samples", "no difference", str(error), right=False)
    return Line("computed again from stored samples", "no difference", output.getvalue().splitlines()[-1], right=True)
