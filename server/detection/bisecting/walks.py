"""A walk as people read it: what each patch adds, and what all add up to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from server.detection.bisecting.chains import Link
from server.detection.bisecting.walk_cells import Chain, Key, key_of, name_of_cell
from server.detection.bisecting.walk_sentences import closing_sentences, sentence_of
from server.detection.bisecting.walking import trials_of_walk
from server.detection.models import Comparison
from server.lab.models import Trial
from server.sources.models import Patch, Series


@dataclass(frozen=True)
class WalkCell:
    """What one patch adds in one cell, as ratios with 95 % intervals; `cumulative` from the base up to this patch."""

    uarch: str
    machine: str
    name: str
    verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    cumulative: float | None
    cumulative_low: float | None
    cumulative_high: float | None


@dataclass(frozen=True)
class WalkRow:
    """One patch."""

    index: int
    subject: str
    sha: str
    sentence: str
    cells: tuple[WalkCell, ...]


@dataclass(frozen=True)
class Walk:
    """`closing` compares what the patches add up to with what the whole series was measured to do, once it is done."""

    rows: tuple[WalkRow, ...]
    closing: tuple[str, ...]
    state: str
    done: bool


def walk_of(series: Series) -> Walk | None:
    """None where no walk was asked for."""
    trials = trials_of_walk(series)
    if not trials:
        return None
    patches = {
        patch.revision_id: patch for patch in series.patches.select_related("revision").defer("paths", "trailers")
    }
    found = _comparisons(trials)
    chain = Chain(key for rows in found.values() for key in rows)
    rows = tuple(_row(patches[trial.patched_id], trial, found[trial.pk], chain) for trial in trials)
    over = [trial for trial in trials if trial.state in Trial.FINAL]
    done = len(over) == len(trials)
    state = f"all {len(trials)} patches measured" if done else f"{len(over)} of {len(trials)} patches measured"
    return Walk(rows, closing_sentences(series, chain.so_far) if done else (), state, done)


def _comparisons(trials: Sequence[Trial]) -> dict[int, dict[Key, Comparison]]:
    """By trial and cell, in the order in which people read them."""
    rows = (
        Comparison.objects.filter(session__trial__in=trials)
        .select_related("session__machine__uarch", "case", "metric", "core_type")
        .order_by("session__machine__uarch__name", "session__machine__name", "case__name", "metric__name", "pk")
    )
    found: dict[int, dict[Key, Comparison]] = {trial.pk: {} for trial in trials}
    for row in rows:
        if row.session.trial_id is not None:
            found[row.session.trial_id][key_of(row)] = row
    return found


def _row(patch: Patch, trial: Trial, rows: Mapping[Key, Comparison], chain: Chain) -> WalkRow:
    sessions = list(trial.sessions.select_related("machine__uarch", "base_build", "patched_build"))
    chain.add(sessions, rows)
    return WalkRow(
        index=patch.index,
        subject=patch.subject,
        sha=patch.revision.sha if patch.revision else "",
        sentence=sentence_of(trial, sessions, list(rows.values())),
        cells=tuple(_cell(row, chain.so_far[key]) for key, row in rows.items()),
    )


def _cell(row: Comparison, so_far: Link | None) -> WalkCell:
    low, high = so_far.interval if so_far else (None, None)
    return WalkCell(
        uarch=row.session.machine.uarch.name,
        machine=row.session.machine.name,
        name=name_of_cell(row),
        verdict=row.verdict,
        ratio=row.ratio,
        low=row.ratio_low,
        high=row.ratio_high,
        cumulative=so_far.ratio if so_far else None,
        cumulative_low=low,
        cumulative_high=high,
    )
