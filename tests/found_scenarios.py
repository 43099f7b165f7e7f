"""Findings as a site of physical machines has them: explained, checked, bisected, walked, and one of a branch."""

import math
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from server.builds.models import Artifact
from server.builds.wanted import recipe_of
from server.core import clock
from server.core.states import Stateful, record_creations
from server.detection.models import (
    Bisection,
    BisectionState,
    BisectionStep,
    ChangePoint,
    Comparison,
    Finding,
    FindingVerdict,
    FleetState,
    MachineQuestion,
    MeasuredHead,
    NoiseProfile,
    Timeline,
    TimelinePoint,
)
from server.lab.models import Machine, Session, Trial
from server.lab.work import boot_order
from server.sources.models import Branch, Patch, Revision, Series
from tests.builders import (
    build_case,
    build_comparison,
    build_config,
    build_finding,
    build_machine,
    build_metric,
    build_revision,
    build_series,
    build_session,
    build_toolchain,
    build_tree,
    build_trial,
    build_trial_session,
    new_boot,
    new_build,
    new_comparison,
    new_image,
    new_revision,
)

_CASES = ("folio-copy-2m", "clear-page-1g", "fault-4k")
_POINTS, _STEP = 60, 40
_WHY = (
    "True of all machines that regressed and of none of the improved ones: no fsrm; with 2 against 1 machines chance "
    "alone finds such facts in 33 % of cases."
)


def split_finding() -> Finding:
    """Version 2 of three patches, of which the second makes it: slower on zen3, faster on zen5."""
    first = _measured(_three_patches(1), {"zen3-a": "regressed", "zen5-a": "regressed"})
    earlier = build_finding(
        first, headline="Regressed on zen3 and zen5 (1.71x time of folio-copy-2m).", state="reported"
    )
    series = _measured(_three_patches(2), {"zen3-a": "regressed", "zen5-a": "improved"})
    finding = build_finding(
        series,
        Finding.Kind.SPLIT,
        headline="Regressed on zen3 (1.71x time of folio-copy-2m), improved on zen5 (0.80x time of folio-copy-2m).",
        previous=earlier,
        checks=[
            {"name": "code", "outcome": "passed", "text": "the builds' code differs", "machine": ""},
            {"name": "layout", "outcome": "passed", "text": "another layout shows it too", "machine": "zen3-a"},
            {"name": "base", "outcome": "not-checked", "text": "no session booted this kernel", "machine": "zen5-a"},
        ],
        explanations=[
            {
                "question": "regressed against improved", "outcome": "one", "text": _WHY, "benchmark": "mm-basic",
                "case": "folio-copy-2m", "metric": "time", "core_type": "all", "changed": ["zen3-a"],
                "others": ["zen5-a"], "conditions": ["no fsrm"], "chance": 0.33,
            }
        ],
        counters=[
            {
                "machine": "zen3-a", "uarch": "zen3", "benchmark": "mm-basic", "case": "folio-copy-2m",
                "counter": "LLC-misses", "ratio": 2.5, "low": 2.4, "high": 2.6, "text": "",
            }
        ],
    )  # fmt: skip
    for machine in ("zen3-a", "zen5-a"):
        _search(finding, series, machine)
    _walk(series)
    culprit = Patch.objects.get(series=series, index=2).revision
    Finding.objects.filter(pk=finding.pk).update(culprit=culprit)
    return finding


def moved_timeline(tree: str = "stable") -> Timeline:
    """One case of a branch on one machine over sixty heads, slower from the fortieth on, with its finding."""
    base = build_revision(build_tree(tree), subject="Linux 7.2")
    branch = Branch.objects.create(tree=base.tree, name="mm/unstable")
    machine = build_machine("zen3-a", "zen3", virtual=False)
    timeline = Timeline.objects.create(
        branch=branch, reference=base, machine=machine, case=build_case("folio-copy-2m"), metric=build_metric(),
        core_type=machine.core_types.get(name="all"), points_seen=_POINTS, last_place=100 + _POINTS,
    )  # fmt: skip
    newest = 100 + _POINTS
    fleet = FleetState.objects.create(
        branch=branch, reference=base, virtual=False, observed=_POINTS, newest_place=newest
    )
    heads = _points(timeline, fleet)
    finding = Finding.objects.create(
        branch=branch, before=heads[_STEP - 1].revision, after=heads[_STEP].revision, kind="regressed",
        state="confirmed", virtual=False,
        headline="Regressed on zen3 (1.12x time of folio-copy-2m).", trace="f" * 16,
    ).record_creation()  # fmt: skip
    cell = Comparison.objects.get(point__head=heads[-1])
    FindingVerdict.objects.create(finding=finding, uarch=machine.uarch, verdict="regressed", comparison=cell)
    ChangePoint.objects.create(
        timeline=timeline, first_place=101 + _STEP, place=101 + _STEP, before_place=100 + _STEP, effect=math.log(1.12),
        score=9.0, state="settled", finding=finding,
    )  # fmt: skip
    if not machine.noise_profiles.exists():
        _noise(machine)
    return timeline


def _three_patches(version: int) -> Series:
    base = build_revision(subject="Linux 7.2")
    patches = [build_revision(base.tree, base, subject=f"mm: Step {number} of copying folios") for number in (1, 2, 3)]
    series = build_series(subject="mm: Copy folios in batches", version=version, total=3, base=base, head=patches[-1])
    for patch, revision in zip(series.patches.order_by("index"), patches, strict=True):
        Patch.objects.filter(pk=patch.pk).update(revision=revision, subject=revision.subject)
    return series


def _measured(series: Series, verdicts: dict[str, str]) -> Series:
    for name, verdict in verdicts.items():
        machine = build_machine(name, name.partition("-")[0], virtual=False)
        session = build_session(series, machine, state=Session.State.DONE)
        for case in _CASES:
            build_comparison(session, verdict if case == _CASES[0] else "unchanged", case=build_case(case))
    return series


def _search(finding: Finding, series: Series, machine: str) -> None:
    target = Comparison.objects.get(session__series=series, session__machine__name=machine, case__name="folio-copy-2m")
    patches = [patch.revision for patch in series.patches.select_related("revision").order_by("index")]
    assert series.base is not None
    assert target.ratio is not None
    revisions = [series.base, *(one for one in patches if one is not None)]
    ratio = target.ratio
    said = f"made by patch 2 of 3: mm: Step 2 ({ratio:.2f}x time of folio-copy-2m on {machine.partition('-')[0]})"
    search = Bisection.objects.create(
        finding=finding, machine=target.session.machine, target=target, revisions=[one.sha for one in revisions],
        low=1, high=2, effect=math.log(ratio), state=BisectionState.FOUND, culprit=revisions[2],
        reason=f"{said}; without it the change is gone",
    )  # fmt: skip
    for number, (kind, index, answer, shown) in enumerate(
        (
            ("ends", 3, "bad", ratio),
            ("middle", 1, "good", 1.0),
            ("culprit", 2, "bad", ratio),
            ("revert", None, "good", 1.0),
        ),
        start=1,
    ):
        trial = build_trial(revisions[0], revisions[index or 3], purpose="bisect", state=Trial.State.DONE)
        build_trial_session(trial, target.session.machine, state=Session.State.DONE)
        BisectionStep.objects.create(
            bisection=search, number=number, kind=kind, index=index, trial=trial, answer=answer, ratio=shown
        )


def _walk(series: Series) -> None:
    assert series.base is not None
    before: Revision = series.base
    for patch in series.patches.select_related("revision").order_by("index"):
        assert patch.revision is not None
        trial = build_trial(before, patch.revision, purpose="patch", series=series, state=Trial.State.DONE)
        for name, verdict in (("zen3-a", "regressed"), ("zen5-a", "improved")):
            session = build_trial_session(trial, build_machine(name), state=Session.State.DONE)
            build_comparison(session, verdict if patch.index == 2 else "unchanged", case=build_case("folio-copy-2m"))
        before = patch.revision


def _points(timeline: Timeline, fleet: FleetState) -> list[MeasuredHead]:
    """The branch's heads, each with all that was measured of it. Row by row this would take seconds."""
    reference, machine = timeline.reference, timeline.machine
    places = range(101, 101 + _POINTS)
    revisions = [new_revision(reference.tree, subject=f"Merge {place}") for place in places]
    Revision.objects.bulk_create(revisions)
    same: dict[str, Any] = {"config": build_config(), "toolchain": build_toolchain()}
    same["recipe"] = recipe_of(**same)
    base, *kernels = [new_build(revision, **same) for revision in (reference, *revisions)]
    _store([base, *kernels])
    Artifact.objects.bulk_create(new_image(kernel) for kernel in (base, *kernels))
    looks = [4]
    trials = [
        Trial(purpose="head", key=f"head:{one.sha}", base=reference, patched=one, state=Trial.State.DONE, looks=looks)
        for one in revisions
    ]
    _store(trials)
    sessions = [
        Session(
            purpose=Session.Purpose.TRIAL, trial=trial, machine=machine, state=Session.State.DONE, trace=trial.trace,
            base_build=base, patched_build=kernel, looks=looks,
        )
        for trial, kernel in zip(trials, kernels, strict=True)
    ]  # fmt: skip
    _store(sessions)
    arms = boot_order(looks[0])
    _store(
        [new_boot(session, position, arm, measured=True) for session in sessions for position, arm in enumerate(arms)]
    )
    heads = [
        MeasuredHead(
            branch=timeline.branch, reference=reference, revision=trial.patched, place=place, trial=trial,
            observed_at=clock.now(), fleet=fleet, observed_as=place - 100,
        )
        for place, trial in zip(places, trials, strict=True)
    ]  # fmt: skip
    MeasuredHead.objects.bulk_create(heads)
    _compare(timeline, sessions, heads)
    return heads


def _compare(timeline: Timeline, sessions: list[Session], heads: list[MeasuredHead]) -> None:
    """What each session showed: slower from the step on, with some noise."""
    numbers = random.Random(7)  # noqa: S311 (noise for a chart)
    cells, points = [], []
    for session, head in zip(sessions, heads, strict=True):
        slower = head.place > 100 + _STEP
        ratio = (1.12 if slower else 1.0) * (1 + numbers.gauss(0, 0.005))
        figures = {"ratio": ratio, "ratio_low": ratio * 0.99, "ratio_high": ratio * 1.01}
        same = {"case": timeline.case, "metric": timeline.metric, "core_type": timeline.core_type}
        cells.append(new_comparison(session, "regressed" if slower else "unchanged", **same, **figures))
        points.append(TimelinePoint(timeline=timeline, head=head, place=head.place, comparison=cells[-1], **figures))
    Comparison.objects.bulk_create(cells)
    TimelinePoint.objects.bulk_create(points)


def _store(rows: Sequence[Stateful]) -> None:
    """All of one kind, with the first lines of their histories."""
    type(rows[0])._default_manager.bulk_create(rows)
    record_creations(rows)


def _noise(machine: Machine) -> None:
    for number, case in enumerate(_CASES):
        NoiseProfile.objects.create(
            machine=machine, case=build_case(case), metric=build_metric(), core_type=machine.core_types.get(name="all"),
            comparisons=40 + number, false_alarms=number, rejections=2, change_95=0.013, boot_sd=0.004, mde=0.011,
            changes=[0.001], last_at=clock.now() - timedelta(hours=5),
        )  # fmt: skip
    MachineQuestion.objects.create(
        key=f"event:{machine.pk}", kind="event", machine=machine, detail="38 of 40 timelines moved at 151", state="open"
    )
