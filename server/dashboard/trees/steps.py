"""Where levels of a branch changed, the newest first: the steps of all timelines at one head are one line."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import log

from django.conf import settings

from server.dashboard.pictures.axis import told
from server.dashboard.trees.measured import MeasuredBranch
from server.dashboard.trees.step_places import PlacedStep, placed, with_places
from server.detection.models import ChangePoint, Finding, MeasuredHead
from server.results.models import Metric
from server.sources.models import Revision

_SHOWN = 12
# Steps are read in so many rows; one change of code may move hundreds of timelines.
_READ = 500
_NAMES = ("timeline__case__benchmark", "timeline__metric", "timeline__machine__uarch", "finding")


@dataclass(frozen=True, slots=True)
class UarchStep:
    """The largest step on a microarchitecture at one head, of so many; `worse` is its direction."""

    uarch: str
    said: str
    worse: bool
    name: str
    timeline: int
    steps: int


@dataclass(frozen=True, slots=True)
class LevelChange:
    """`sha` is the first head of the new level, `before_sha` the last one of the old."""

    sha: str
    before_sha: str
    subject: str
    author: str
    place: int
    largest: tuple[UarchStep, ...]
    findings: tuple[int, ...]


def level_changes(shown: MeasuredBranch) -> tuple[LevelChange, ...]:
    """What was taken back, or is a machine's, is told on its timeline. Two queries."""
    rows = ChangePoint.objects.filter(
        timeline__branch=shown.id,
        timeline__reference=shown.reference_id,
        timeline__machine__virtual=shown.virtual,
        state__in=(ChangePoint.State.SUSPECT, ChangePoint.State.SETTLED),
    )
    long = [f"finding__{name}" for name in Finding.LONG]
    named_rows = with_places(rows.select_related(*_NAMES).defer("timeline__watch", *long))
    steps = placed(named_rows.order_by("-place", "pk")[:_READ])
    grouped = [(place, list(own)) for place, own in groupby(steps, key=lambda one: one.place)][:_SHOWN]
    places = {place for _, own in grouped for one in own for place in (one.place, one.before_place)}
    heads = MeasuredHead.objects.filter(branch=shown.id, reference=shown.reference_id, place__in=places)
    named = {head.place: head.revision for head in heads.select_related("revision")}
    return tuple(_change(place, own, named.get(place), named) for place, own in grouped)


def _change(place: int, steps: Sequence[PlacedStep], first: Revision | None, named: dict[int, Revision]) -> LevelChange:
    last = named.get(max(one.before_place for one in steps))
    by_uarch: dict[str, list[PlacedStep]] = {}
    for one in sorted(steps, key=lambda step: -abs(log(step.ratio))):
        by_uarch.setdefault(one.change.timeline.machine.uarch.name, []).append(one)
    return LevelChange(
        sha=first.sha if first else "",
        before_sha=last.sha if last else "",
        subject=first.subject if first else "",
        author=first.author if first else "",
        place=place,
        largest=tuple(_uarch_step(uarch, own[0], len(own)) for uarch, own in by_uarch.items()),
        findings=tuple(sorted({row.pk for one in steps if (row := one.change.finding) and _is_shown(row)})),
    )


def _uarch_step(uarch: str, largest: PlacedStep, steps: int) -> UarchStep:
    timeline = largest.change.timeline
    return UarchStep(
        uarch=uarch,
        said=told(largest.ratio, timeline.metric.better),
        worse=(largest.ratio < 1) == (timeline.metric.better == Metric.Better.HIGHER),
        name=f"{timeline.case.benchmark.name}/{timeline.case.name} {timeline.metric.name}",
        timeline=timeline.pk,
        steps=steps,
    )


def _is_shown(finding: Finding) -> bool:
    return settings.VIRTUAL_VERDICTS or not finding.virtual
