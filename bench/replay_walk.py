"""The walk over a series: which of its patches earn their place."""

from collections.abc import Iterable

from bench.replay_lines import Line, line
from bench.replay_player import Player
from bench.replay_studies import WORTH_NOTHING
from server.detection.bisecting.walking import ask_for_walk
from server.detection.bisecting.walks import walk_of
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Trial

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
