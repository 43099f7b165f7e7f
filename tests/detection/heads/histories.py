"""A branch whose heads were measured, point by point, without boots: what comparisons said is given."""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from server.detection.branches.candidates import take_up_news
from server.detection.branches.fleet import store_watches
from server.detection.models import ChangePoint, Comparison, FleetState, MeasuredHead, Timeline, Verdict
from server.detection.on_trial_over import answer_branch
from server.detection.recompute.differences import Difference
from server.detection.recompute.replay import Replay
from server.lab.models import Session, Trial
from server.results.models import Case
from server.sources.models import Branch
from server.stats.changepoints.watch import Point, extended, watch_from_dict
from tests.builders import (
    EPOCH,
    build_build,
    build_case,
    build_machine,
    build_metric,
    build_revision,
    build_tree,
    build_trial,
)

NOISE: Final = 0.002


class History:
    """Heads of one branch on some machines; `head` measures the next one and lets it enter the timelines."""

    def __init__(self, machines: Mapping[str, str], cases: int = 3, *, seed: int = 1) -> None:
        self.tree = build_tree("mainline")
        self.branch = Branch.objects.create(tree=self.tree, name="master")
        self.reference = build_revision(self.tree)
        self.machines = [build_machine(name, uarch, virtual=False) for name, uarch in machines.items()]
        self.cases = [build_case(f"case-{number}") for number in range(cases)]
        self.place = 100
        self._core_types = {machine.pk: machine.core_types.get(name="all") for machine in self.machines}
        self._metric = build_metric()
        self._noise = np.random.default_rng(seed)
        self._base = build_build(self.reference)
        self._patched = build_build(build_revision(self.tree))

    def planned(self, *, place: int | None = None) -> MeasuredHead:
        """A head whose trial is wanted."""
        self.place = self.place + 1 if place is None else place
        revision = build_revision(self.tree)
        trial = build_trial(self.reference, revision, looks=[3])
        return MeasuredHead.objects.create(
            branch=self.branch, revision=revision, reference=self.reference, place=self.place, trial=trial
        )

    def measured(self, head: MeasuredHead, levels: Mapping[tuple[str, int], float] | None = None) -> Trial:
        """The head's trial is over, with the ratios of the levels (by machine and case; else 1), give or take noise."""
        sessions = Session.objects.bulk_create(
            Session(
                purpose=Session.Purpose.TRIAL,
                trial=head.trial,
                machine=machine,
                state=Session.State.DONE,
                base_build=self._base,
                patched_build=self._patched,
            )
            for machine in self.machines
        )
        Comparison.objects.bulk_create(
            self._comparison(session, case, (levels or {}).get((session.machine.name, number), 1.0))
            for session in sessions
            for number, case in enumerate(self.cases)
        )
        Trial.objects.filter(pk=head.trial_id).update(state=Trial.State.DONE)
        head.trial.refresh_from_db()
        return head.trial

    def head(self, levels: Mapping[tuple[str, int], float] | None = None) -> MeasuredHead:
        head = self.planned()
        answer_branch(self.measured(head, levels))
        return head

    def heads(self, count: int, levels: Mapping[tuple[str, int], float] | None = None) -> None:
        for _ in range(count):
            self.head(levels)

    def passed(self, count: int) -> None:
        """Heads that entered the timelines after the first one, all at their last levels; without rows of points."""
        fleet = FleetState.objects.get(branch=self.branch)
        for _ in range(count):
            head = self.planned()
            watches = {str(one.pk): watch_from_dict(one.watch) for one in Timeline.objects.all()}
            store_watches(
                head.place, {name: extended(one, Point(head.place, one.values[-1])) for name, one in watches.items()}
            )
            MeasuredHead.objects.filter(pk=head.pk).update(fleet=fleet, observed_at=EPOCH, observed_as=self.place)
        Trial.objects.filter(heads__fleet=fleet).update(state=Trial.State.DONE)

    def everywhere(self, case: int, ratio: float) -> dict[tuple[str, int], float]:
        return {(machine.name, case): ratio for machine in self.machines}

    def all_of(self, machine: str, ratio: float) -> dict[tuple[str, int], float]:
        return {(machine, case): ratio for case in range(len(self.cases))}

    def steps(self, place: int, effects: Mapping[tuple[str, int], float], *, really: int | None = None) -> None:
        """Timelines (by machine and case) are suspected to have moved at a head, by log ratios.

        They `really` did at another place.
        """
        head = MeasuredHead.objects.get(place=place)
        for (machine, case), effect in effects.items():
            timeline = Timeline.objects.get(machine__name=machine, case=self.cases[case])
            revisions, values = timeline.watch["revisions"], timeline.watch["values"]
            timeline.watch["values"] = [
                value * math.exp(effect) if revision >= (really or place) else value
                for revision, value in zip(revisions, values, strict=True)
            ]
            index = timeline.watch["indices"][revisions.index(place)]
            published = {"index": index, "revision": place, "effect": effect, "score": 5.0, "reported": index}
            timeline.watch["published"].append({**published, "state": "suspect"})
            timeline.save(update_fields=["watch"])
        points = [
            ChangePoint.objects.create(
                timeline=Timeline.objects.get(machine__name=machine, case=self.cases[case]),
                first_place=place,
                place=place,
                before_place=place - 1,
                effect=effect,
                score=5.0,
                state=ChangePoint.State.SUSPECT,
            )
            for (machine, case), effect in effects.items()
        ]
        take_up_news(head, points)

    def _comparison(self, session: Session, case: Case, level: float) -> Comparison:
        ratio = level * math.exp(self._noise.normal(0, NOISE))
        return Comparison(
            session=session,
            case=case,
            metric=self._metric,
            core_type=self._core_types[session.machine_id],
            verdict=Verdict.INCONCLUSIVE,
            base_boots=3,
            patched_boots=3,
            ratio=ratio,
            ratio_low=ratio * 0.99,
            ratio_high=ratio * 1.01,
            family_size=1,
            min_effect=0.01,
        )


def branch_differences() -> list[Difference]:
    """Of all timelines, made anew at once."""
    return [found for row in FleetState.objects.all() for found in Replay(row).go_on(math.inf)]
