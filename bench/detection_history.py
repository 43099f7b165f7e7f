"""Branches with as many points as are asked for, written by the database itself; their last points are remembered."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from django.db import connection
from django.db.models import Max

from server.builds.models import Build
from server.core import clock
from server.detection.heads.fleets import new_watch
from server.detection.models import Comparison, FleetState, MeasuredHead, Timeline, TimelinePoint, Verdict
from server.lab.models import CoreType, Session, Trial
from server.sources.models import Branch, Revision
from server.stats.watch_state import WINDOW, Point, extended
from tests.builders import (
    build_build,
    build_case,
    build_machine,
    build_metric,
    build_revision,
    build_tree,
    build_trial,
    fake_sha,
)

MACHINES, CASES = 6, 8
# Deviation of one ratio, as of quiet machines.
_NOISE = 0.004
_AT_ONCE = 2000

_COMPARISONS = """
INSERT INTO detection_comparison (session_id, case_id, metric_id, core_type_id, verdict, reason, base_boots,
    patched_boots, ratio, ratio_low, ratio_high, family_size, min_effect, flags, computed_at)
SELECT session.id, one.id, %s, core.id, 'inconclusive', '', 3, 3,
    exp(%s * 2 * (random() + random() + random() - 1.5)), 0.99, 1.01, 48, 0.01, '{}', now()
FROM lab_session session JOIN detection_measuredhead head ON head.trial_id = session.trial_id
JOIN lab_coretype core ON core.machine_id = session.machine_id
CROSS JOIN results_case one
WHERE head.branch_id = %s AND one.id = ANY(%s)
"""
_POINTS = """
INSERT INTO detection_timelinepoint (timeline_id, head_id, comparison_id, place, ratio, ratio_low, ratio_high)
SELECT timeline.id, head.id, row.id, head.place, row.ratio, row.ratio_low, row.ratio_high
FROM detection_comparison row JOIN lab_session session ON session.id = row.session_id
JOIN detection_measuredhead head ON head.trial_id = session.trial_id
JOIN detection_timeline timeline ON timeline.branch_id = head.branch_id AND timeline.machine_id = session.machine_id
    AND timeline.case_id = row.case_id
WHERE head.branch_id = %s
"""


@dataclass(frozen=True)
class History:
    """A branch with `length` observed heads; `measured` adds one whose trial is over and that nobody observed yet."""

    branch: Branch
    reference: Revision
    length: int
    noise: np.random.Generator

    def measured(self) -> MeasuredHead:
        newest = MeasuredHead.objects.filter(branch=self.branch).aggregate(place=Max("place"))
        trial = build_trial(
            self.reference, build_revision(self.reference.tree), looks=[3], state=Trial.State.DONE, machines=()
        )
        metric, cases = build_metric(), [build_case(f"case-{number}") for number in range(CASES)]
        for core_type in CoreType.objects.select_related("machine").order_by("machine__name")[:MACHINES]:
            session = _session(trial, core_type)
            session.save()
            Comparison.objects.bulk_create(
                Comparison(
                    session=session,
                    case=case,
                    metric=metric,
                    core_type=core_type,
                    verdict=Verdict.INCONCLUSIVE,
                    base_boots=3,
                    patched_boots=3,
                    ratio=float(np.exp(self.noise.normal(0, _NOISE))),
                    family_size=MACHINES * CASES,
                    min_effect=0.01,
                )
                for case in cases
            )
        return MeasuredHead.objects.create(
            branch=self.branch,
            revision=trial.patched,
            reference=self.reference,
            place=newest["place"] + 1,
            trial=trial,
        )


def make_history(name: str, length: int) -> History:
    """A branch on which nothing changes; its timelines are those of MACHINES x CASES."""
    tree = build_tree("mainline")
    branch = Branch.objects.create(tree=tree, name=name)
    reference = build_revision(tree)
    fleet = FleetState.objects.create(
        branch=branch, reference=reference, virtual=False, observed=length, newest_place=length - 1
    )
    core_types = [
        build_machine(f"m{number}", f"uarch-{number % 3}", virtual=False).core_types.get(name="all")
        for number in range(MACHINES)
    ]
    _heads(fleet, core_types, length)
    cases = [build_case(f"case-{number}") for number in range(CASES)]
    Timeline.objects.bulk_create(
        Timeline(
            branch=branch,
            reference=reference,
            machine=core_type.machine,
            case=case,
            metric=build_metric(),
            core_type=core_type,
            points_seen=length,
            last_place=length - 1,
        )
        for core_type in core_types
        for case in cases
    )
    with connection.cursor() as cursor:
        cursor.execute(_COMPARISONS, [build_metric().pk, _NOISE, branch.pk, [case.pk for case in cases]])
        cursor.execute(_POINTS, [branch.pk])
    _remember(branch, length)
    return History(branch, reference, length, np.random.default_rng(length))


def settle() -> None:
    """As a database that has run for a while: statistics are known, and no upkeep is due while something is timed."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")


def _heads(fleet: FleetState, core_types: list[CoreType], length: int) -> None:
    start, now = fleet.reference.pk * 10**9, clock.now()
    revisions = Revision.objects.bulk_create(
        (
            Revision(
                sha=fake_sha(start + place),
                tree_sha=fake_sha(start + place),
                tree=fleet.reference.tree,
                subject=f"mm: Change {place}",
                author="Ada Author <ada@example.org>",
                committed_at=now,
                foreign=False,
            )
            for place in range(length)
        ),
        batch_size=_AT_ONCE,
    )
    trials = Trial.objects.bulk_create(
        (
            Trial(
                key=f"head:{fleet.pk}:{revision.pk}",
                purpose=Trial.Purpose.HEAD,
                base=fleet.reference,
                patched=revision,
                looks=[3],
                state=Trial.State.DONE,
                answered_at=now,
            )
            for revision in revisions
        ),
        batch_size=_AT_ONCE,
    )
    MeasuredHead.objects.bulk_create(
        (
            MeasuredHead(
                branch=fleet.branch,
                revision=trial.patched,
                reference=fleet.reference,
                place=place,
                trial=trial,
                observed_at=now,
                fleet=fleet,
                observed_as=place + 1,
            )
            for place, trial in enumerate(trials)
        ),
        batch_size=_AT_ONCE,
    )
    Session.objects.bulk_create(
        (_session(trial, core_type) for trial in trials for core_type in core_types), batch_size=_AT_ONCE
    )


def _session(trial: Trial, core_type: CoreType) -> Session:
    kernel = _kernel()
    return Session(
        purpose=Session.Purpose.TRIAL,
        trial=trial,
        machine=core_type.machine,
        state=Session.State.DONE,
        base_build=kernel,
        patched_build=kernel,
        concluded_at=clock.now(),
    )


@cache
def _kernel() -> Build:
    """Which kernels were booted does not matter here."""
    return build_build()


def _remember(branch: Branch, length: int) -> None:
    for timeline in Timeline.objects.filter(branch=branch).select_related("metric", "core_type"):
        points = TimelinePoint.objects.filter(timeline=timeline).order_by("-place")[:WINDOW]
        watch = new_watch(timeline)
        for point in reversed(points):
            watch = extended(watch, Point(point.place, point.ratio))
        missing = length - watch.seen
        timeline.watch = {
            **watch.as_dict(),
            "seen": length,
            "indices": [index + missing for index in watch.indices],
        }
        timeline.save(update_fields=["watch"])
