"""Reads what sessions measured and compares it, cell by cell."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from server import stats
from server.builds.models import Artifact
from server.detection.models import Comparison, Verdict
from server.lab.models import Boot, Session
from server.results.models import Measurement

# Smaller changes get no verdict. Published practice for kernels; once a cell has A/A boots of its own, their spread
# will decide (docs/statistics.md).
MIN_EFFECT = 0.01

SAME_IMAGE = "both kernels are the same image: the difference is the machine's own"


@dataclass(frozen=True)
class CaseNote:
    """Why one case gave nothing in some boots of a session."""

    session_id: int
    benchmark: str
    case: str
    text: str


@dataclass
class _Collected:
    """The boots of one cell while they are read."""

    first: Measurement
    values: dict[str, list[list[float]]] = field(default_factory=lambda: {arm: [] for arm in Boot.Arm.values})
    positions: dict[str, list[int]] = field(default_factory=lambda: {arm: [] for arm in Boot.Arm.values})

    def add(self, measurement: Measurement) -> None:
        arm = measurement.boot.arm
        self.values[arm].append(measurement.values[measurement.warmup :])
        self.positions[arm].append(measurement.boot.position)

    def cell(self) -> stats.Cell:
        metric = self.first.metric
        better: Literal["lower", "higher"] = "lower" if metric.better == metric.Better.LOWER else "higher"
        return stats.Cell(
            base=self.values[Boot.Arm.BASE],
            patched=self.values[Boot.Arm.PATCHED],
            better=better,
            min_effect=MIN_EFFECT,
            resolution=metric.resolution,
            base_positions=self.positions[Boot.Arm.BASE],
            patched_positions=self.positions[Boot.Arm.PATCHED],
            name=f"session {self.first.boot.session_id}, {self.first.case}, {metric.name}",
        )


def fresh_comparisons(sessions: Sequence[Session]) -> list[Comparison]:
    """Unsaved comparisons of all cells of these sessions; together they are one family."""
    by_id = {session.pk: session for session in sessions}
    collected = _collect(by_id)
    judged = stats.judge_family(stats.compare([cell.cell() for cell in collected]))
    identical = sessions_with_one_image(sessions)
    notes = {(note.session_id, note.benchmark, note.case): note.text for note in case_notes(sessions)}
    rows = []
    for cell, result in zip(collected, judged, strict=True):
        row = _row(by_id[cell.first.boot.session_id], cell.first, result)
        note = notes.get((row.session_id, row.case.benchmark.name, row.case.name))
        if note and row.verdict == Verdict.INCONCLUSIVE:
            row.reason = f"{row.reason}; {note}"
        if row.session_id in identical and row.verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
            row.verdict, row.reason = Verdict.INCONCLUSIVE, SAME_IMAGE
        rows.append(row)
    return rows


def sessions_with_one_image(sessions: Sequence[Session]) -> set[int]:
    """Sessions whose two kernels are byte for byte the same image."""
    builds = {build for session in sessions for build in (session.base_build_id, session.patched_build_id)}
    images = dict(Artifact.objects.filter(build__in=builds, kind=Artifact.Kind.IMAGE).values_list("build_id", "sha256"))
    return {
        session.pk
        for session in sessions
        if session.base_build_id in images and images[session.base_build_id] == images.get(session.patched_build_id)
    }


def case_notes(sessions: Sequence[Session]) -> list[CaseNote]:
    """One note for each session and case that gave nothing in some boot, from what the agent wrote down."""
    texts: dict[tuple[int, str, str], dict[str, None]] = defaultdict(dict)
    boots = Boot.objects.filter(session__in=sessions).exclude(notes=[])
    for session_id, arm, notes in boots.order_by("session_id", "position").values_list("session_id", "arm", "notes"):
        for note in notes:
            key = (session_id, str(note.get("benchmark", "")), str(note.get("case", "")))
            text = note.get("reason") or note.get("outcome") or "gave no values"
            texts[key][f"{arm} kernel: {text}"] = None
    return [CaseNote(*key, text="; ".join(found)) for key, found in texts.items()]


def _collect(by_id: dict[int, Session]) -> list[_Collected]:
    measurements = (
        Measurement.objects.filter(boot__session__in=by_id, boot__state=Boot.State.MEASURED)
        .select_related("boot", "case__benchmark", "metric", "core_type")
        .order_by("boot__session_id", "case__name", "case_id", "metric__name", "core_type__name", "boot__position")
    )
    cells: dict[tuple[int, int, int, int], _Collected] = {}
    for measurement in measurements:
        key = (measurement.boot.session_id, measurement.case_id, measurement.metric_id, measurement.core_type_id)
        if key not in cells:
            cells[key] = _Collected(first=measurement)
        cells[key].add(measurement)
    return list(cells.values())


def _row(session: Session, of: Measurement, result: stats.Comparison) -> Comparison:
    return Comparison(
        session=session,
        case=of.case,
        metric=of.metric,
        core_type=of.core_type,
        verdict=Verdict(result.verdict.value),
        reason=result.reason,
        base_boots=result.base.boots,
        patched_boots=result.patched.boots,
        base_mean=result.base.mean,
        base_sd=result.base.sd,
        patched_mean=result.patched.mean,
        patched_sd=result.patched.sd,
        ratio=result.ratio,
        ratio_low=result.ratio_low,
        ratio_high=result.ratio_high,
        p_value=result.p_value,
        p_adjusted=result.p_adjusted,
        p_rank=result.p_rank,
        family_size=result.family_size,
        min_effect=MIN_EFFECT,
        mde=result.mde,
        flags=[flag.value for flag in result.flags],
    )
