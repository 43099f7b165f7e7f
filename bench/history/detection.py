"""A trial of as many cells as are asked for, measured and not looked at; and the time its judgement takes."""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from functools import cache

import numpy as np
from django.db import connection
from django.db.models import Max

from bench.table import table
from server.builds.models import Build
from server.core import clock
from server.detection.branches.fleet import new_watch
from server.detection.branches.observation import observe_next
from server.detection.models import Comparison, FleetState, MeasuredHead, Timeline, TimelinePoint, Verdict
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, CoreType, Machine, Session, Trial
from server.results.models import Case, PackedValues
from server.sources.models import Branch, Revision
from server.stats.changepoints.watch import WINDOW, Point, extended
from tests.builders import (
    build_build,
    build_case,
    build_machine,
    build_metric,
    build_revision,
    build_tree,
    build_trial,
    build_trial_session,
    build_version,
    fake_sha,
    packed,
)

_MACHINES, _BOOTS, _RUNS, _WARMUP = 5, 4, 6, 1
_BOOT_SD, _RUN_SD = 0.01, 0.01


def judged_in(cells: int) -> float:
    """Seconds from the stored boots of a new trial to its comparisons, all of them one family."""
    machines = [build_machine(f"judged-{number}", f"uarch-{number}", virtual=False) for number in range(_MACHINES)]
    cases = [build_case(f"judged-{number}", runs=_RUNS, warmup=_WARMUP) for number in range(cells // _MACHINES)]
    trial = build_trial(purpose=Trial.Purpose.HEAD, state=Trial.State.MEASURING, machines=machines, looks=[_BOOTS])
    noise = np.random.default_rng(1)
    for machine in machines:
        _measure(trial, machine, cases, noise)
    begun = time.perf_counter()
    over = look_at_trial(trial_id=trial.pk)
    spent = time.perf_counter() - begun
    stored = Comparison.objects.filter(session__trial=trial).count()
    if not over or stored != len(machines) * len(cases):
        raise SystemExit(f"{stored} comparisons of {len(machines) * len(cases)} cells were stored")
    return spent


def _measure(trial: Trial, machine: Machine, cases: list[Case], noise: np.random.Generator) -> None:
    session = build_trial_session(trial, machine, state=Session.State.DONE)
    metric, core_type = build_metric(), machine.core_types.get(name="all")
    same = {"metric": metric, "core_type": core_type, "version": build_version(cases[0])}
    for boot in Boot.objects.filter(session=session):
        levels = np.exp(noise.normal(np.log(1000), _BOOT_SD, len(cases)))
        values = levels[:, None] * np.exp(noise.normal(0, _RUN_SD, (len(cases), _RUNS)))
        PackedValues.objects.bulk_create(
            packed(case, own.tolist(), _WARMUP, boot=boot, **same) for case, own in zip(cases, values, strict=True)
        )


MACHINES, CASES = 6, 8
# Deviation of one ratio, as of quiet machines.
_NOISE = 0.004
_AT_ONCE = 2000

_COMPARISONS = """
INSERT INTO detection_comparison (session_id, case_id, metric_id, core_type_id, verdict, reason, reason_code,
    base_boots, patched_boots, ratio, ratio_low, ratio_high, family_size, min_effect, flags, computed_at)
SELECT session.id, one.id, %s, core.id, 'inconclusive', '', '', 3, 3,
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


# What detection costs as history grows: a new point of a long timeline beside a short one, and 2000 cells judged.
#
#     python -m bench.scratch_database bench.history.detection [--points 40] [--cells 2000]
#
# On PostgreSQL, through the service's own code. Fails where a new point on timelines of 5000 points costs more than
# 20 % above one of 500 points (or less below), or judging and storing takes 3 s.


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=40, help="new heads on each branch that are timed")
    parser.add_argument("--cells", type=int, default=2000, help="cells of the trial that is judged")
    return parser.parse_args(arguments)


SHORT, LONG = 500, 5000
# By how much the cost on a long timeline may differ, as a share of that on a short one.
_ALIKE = 0.20
_JUDGED_IN = 3.0


def main(*arguments: str) -> None:
    """Time both, print the figures beside their bars, and fail where one does not hold."""
    chosen = options(list(arguments))
    short, long = make_history("short", SHORT), make_history("long", LONG)
    settle()
    costs = _costs(short, long, chosen.points)
    cells = judged_in(chosen.cells)
    before, after = (statistics.median(costs[history.length]) for history in (short, long))
    # Of neighbours in time: what else the host does slows both.
    ratio = statistics.median(b / a for a, b in zip(costs[SHORT], costs[LONG], strict=True))
    timelines = MACHINES * CASES
    rows = [
        (f"a new head on {timelines} timelines of {SHORT} points, ms", f"{1000 * before:.1f}", "", ""),
        (f"a new head on {timelines} timelines of {LONG} points, ms", f"{1000 * after:.1f}", "", ""),
        ("  ratio", f"{ratio:.3f}", f"{1 - _ALIKE:.1f} to {1 + _ALIKE:.1f}", _mark(abs(ratio - 1) <= _ALIKE)),
        (f"{chosen.cells} cells judged and stored, s", f"{cells:.2f}", f"< {_JUDGED_IN:g}", _mark(cells < _JUDGED_IN)),
    ]
    print(table(("", "seen", "bar", ""), rows))
    if any(row[-1] == "FAIL" for row in rows):
        sys.exit(1)


def _costs(short: History, long: History, points: int) -> dict[int, list[float]]:
    """Seconds of each new head, by the length of its branch; turn and turn about, so that both see the same minutes."""
    costs: dict[int, list[float]] = {short.length: [], long.length: []}
    for number in range(points):
        # Whoever goes first warms the caches of the other.
        for history in (short, long) if number % 2 else (long, short):
            history.measured()
            begun = time.perf_counter()
            if not observe_next(history.branch.pk, history.reference.pk):
                raise SystemExit(f"no head of {history.branch} was due")
            costs[history.length].append(time.perf_counter() - begun)
    return costs


def _mark(holds: bool) -> str:  # noqa: FBT001 (a word for a flag)
    return "pass" if holds else "FAIL"
