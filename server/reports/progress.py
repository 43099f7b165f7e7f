"""How far a series has come: derived from its rows whenever it is asked for, stored nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from server.reports.rows import SeriesRows, rows_of_many
from server.reports.stages import (
    Stage,
    StageName,
    apply_stage,
    builds_stage,
    mails_stage,
    report_stage,
    sessions_stage,
    verdict_stage,
)
from server.sources.models import Series, SeriesState

ProgressState = Literal["running", "done", "failed", "held", "superseded"]


@dataclass(frozen=True, slots=True)
class SeriesProgress:
    """`held` waits for a person, `reason` says for what; `failed` has no way on, `reason` says why."""

    series_id: int
    state: ProgressState
    reason: str
    stages: tuple[Stage, ...]

    def stage(self, name: StageName) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def current(self) -> Stage:
        """The stage that is not done yet, or the last one."""
        return next((stage for stage in self.stages if stage.state != "done"), self.stages[-1])


def series_progress(series: Series) -> SeriesProgress:
    return series_progress_many([series])[0]


def series_progress_many(series: Sequence[Series]) -> list[SeriesProgress]:
    """The progress of each series, in the order given; the number of queries does not depend on how many."""
    return [_progress(rows) for rows in rows_of_many(series)]


def _progress(rows: SeriesRows) -> SeriesProgress:
    sessions = sessions_stage(rows)
    verdict = verdict_stage(rows, sessions)
    stages = (
        mails_stage(rows),
        apply_stage(rows),
        builds_stage(rows),
        sessions,
        verdict,
        report_stage(rows, verdict),
    )
    state, reason = _overall(rows.series, stages)
    return SeriesProgress(rows.series.pk, state, reason, stages)


def _overall(series: Series, stages: Sequence[Stage]) -> tuple[ProgressState, str]:
    if series.state == SeriesState.SUPERSEDED:
        newer = series.superseded_by
        return "superseded", f"superseded by version {newer.numeral}" if newer else series.reason
    failed = next((stage for stage in stages if stage.state == "failed"), None)
    # Machines whose kernels do not build get failed sessions at once: only then is nothing left to happen.
    if failed is not None and not any(stage.state == "running" for stage in stages):
        return "failed", f"{failed.name}: {failed.detail}"
    held = next((stage for stage in stages if stage.held), None)
    if held is not None:
        return "held", held.detail
    if all(stage.state == "done" for stage in stages):
        return "done", stages[4].detail
    current = next(stage for stage in stages if stage.state != "done")
    return "running", f"{current.name}: {current.detail}" if current.detail else current.name
