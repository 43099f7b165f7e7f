import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from server.stats.changepoints.fleet import Fleet, Resolution, resolve
from server.stats.changepoints.nominations import nominate
from server.stats.changepoints.shifts import CLEAR
from server.stats.changepoints.steps import Step
from server.stats.changepoints.timeline import TimelineValues
from tests.stats.fleets import BENCHMARKS, MACHINES, everything_of, everywhere, fleet


def _revisions(timelines: list[TimelineValues], found: Fleet) -> dict[str, list[int]]:
    return {t.name: [s.revision for s in steps] for t, steps in zip(timelines, found.steps, strict=True) if steps}


def test_fleet_that_does_not_change_has_no_steps_and_no_events() -> None:
    assert resolve(fleet({})) == Fleet(steps=[[] for _ in range(24)], events=[])


def test_code_change_is_found_on_every_machine_at_the_same_revision() -> None:
    timelines = fleet(everywhere("pipe", 60, 0.05))
    found = resolve(timelines)
    assert found.events == []
    assert _revisions(timelines, found) == {f"{machine}/pipe": [60] for machine in MACHINES}


def test_weak_change_is_believed_where_other_machines_show_it() -> None:
    changes = everywhere("pipe", 60, 0.05)
    weak = next(t for t in fleet(changes, noise=0.06, seed=5) if t.name == "zen3/pipe")
    timelines = [weak if t.name == weak.name else t for t in fleet(changes)]
    assert resolve([weak]).steps == [[]]
    assert _revisions(timelines, resolve(timelines))["zen3/pipe"] == [60]


def test_step_of_a_whole_machine_is_its_event_and_not_a_step_of_the_code() -> None:
    timelines = fleet(everything_of("zen5", 40, 0.04))
    found = resolve(timelines)
    assert _revisions(timelines, found) == {}
    assert [(e.machine, e.moved, e.measured) for e in found.events] == [("zen5", 6, 6)]
    assert abs(found.events[0].revision - 40) <= 1
    assert found.events[0].shifts["zen5/pipe"] == pytest.approx(0.032, abs=0.01)


def test_code_change_beside_an_event_is_still_found() -> None:
    changes = everything_of("zen5", 40, 0.03)
    for key, steps in everywhere("kbuild", 60, -0.06).items():
        changes.setdefault(key, []).extend(steps)
    timelines = fleet(changes)
    found = resolve(timelines)
    assert [e.machine for e in found.events] == ["zen5"]
    assert _revisions(timelines, found) == {f"{machine}/kbuild": [60] for machine in MACHINES}


def test_change_of_every_benchmark_on_every_machine_is_the_code() -> None:
    changes = {(m, b): [(60, 0.05)] for m in MACHINES for b in BENCHMARKS}
    timelines = fleet(changes)
    found = resolve(timelines)
    assert found.events == []
    assert len(_revisions(timelines, found)) == 24


def test_change_of_two_benchmarks_on_one_machine_is_the_code() -> None:
    timelines = fleet({("zen3", "pipe"): [(60, 0.06)], ("zen3", "fork"): [(60, 0.05)]})
    found = resolve(timelines)
    assert found.events == []
    assert _revisions(timelines, found) == {"zen3/pipe": [60], "zen3/fork": [60]}


def test_machine_that_did_not_measure_for_a_while_shows_the_change_late_and_is_no_event() -> None:
    changes = {key: value for b in BENCHMARKS[:4] for key, value in everywhere(b, 60, 0.05).items()}
    timelines = fleet(changes)
    gap = np.r_[0:58, 68:120]
    timelines = [
        dataclasses.replace(t, values=t.values[gap], revisions=t.revisions[gap]) if t.machine == "zen5" else t
        for t in timelines
    ]
    found = resolve(timelines)
    assert found.events == []
    assert _revisions(timelines, found)["zen5/pipe"] == [68]
    assert _revisions(timelines, found)["zen3/pipe"] == [60]


def test_hiccup_of_three_runs_on_all_benchmarks_is_nothing() -> None:
    changes = {("zen3", b): [(60, 0.2), (63, -0.2)] for b in BENCHMARKS}
    assert resolve(fleet(changes)) == Fleet(steps=[[] for _ in range(24)], events=[])


def test_order_of_the_timelines_does_not_matter() -> None:
    changes = {**everything_of("zen5", 40, 0.03), **everywhere("kbuild", 80, 0.05)}
    timelines = fleet(changes)
    found, turned = resolve(timelines), resolve(timelines[::-1])
    assert found.steps == turned.steps[::-1]
    assert [(e.machine, e.revision) for e in found.events] == [(e.machine, e.revision) for e in turned.events]


def test_timelines_without_names_are_judged_each_on_its_own() -> None:
    named = fleet(everywhere("pipe", 60, 0.05))
    nameless = [dataclasses.replace(t, machine="", benchmark="") for t in named]
    found = resolve(nameless)
    assert found.events == []
    assert [[s.revision for s in steps] for steps in found.steps] == [
        [60] if t.benchmark == "pipe" else [] for t in named
    ]


def test_fleet_of_one_timeline_works() -> None:
    timelines = fleet({("a", "b"): [(50, 0.1)]}, machines=["a"], benchmarks=["b"])
    assert _revisions(timelines, resolve(timelines)) == {"a/b": [50]}


def test_each_timeline_is_one_more_chance_to_be_wrong() -> None:
    """What would be believed of the only timeline of a fleet is chance among many."""

    def doubtful(timelines: Sequence[TimelineValues], *, threshold: float) -> list[list[Step]]:
        return [[Step(50, 50, 0.05, 5.0, 50)] if t.name == "zen3/pipe" and threshold <= 5 else [] for t in timelines]

    many = fleet({("zen3", "pipe"): [(50, 0.05)]})
    alone = [t for t in many if t.name == "zen3/pipe"]
    assert _revisions(alone, resolve(alone, nominate=doubtful)) == {"zen3/pipe": [50]}
    assert _revisions(many, resolve(many, nominate=doubtful)) == {}


def test_no_timelines_give_nothing() -> None:
    assert resolve([]) == Fleet(steps=[], events=[])


def test_two_timelines_of_one_name_are_refused() -> None:
    one = fleet({}, machines=["a"], benchmarks=["b"])
    with pytest.raises(ValueError, match="timeline a/b"):
        resolve([*one, *one])


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [5.0] * 120,
        [0.0] * 120,
        [float("nan")] * 120,
        [float("inf"), 1.0, 2.0] * 40,
        [1e-300, 1e300] * 60,
        [1e300] * 60 + [1e-300] * 60,
        [-1e300] * 60 + [1e300] * 60,
        [-1.7e308] * 60 + [1.7e308] * 60,
        [-1.7e308, 1.7e308] * 60,
        [-3.0, 0.0, 3.0] * 40,
    ],
)
def test_strange_values_beside_a_change_do_not_disturb_it(values: list[float]) -> None:
    timelines = fleet(everywhere("pipe", 60, 0.05))
    strange = [
        TimelineValues(f"zen3/odd{i}", np.array(values), np.arange(len(values)), machine="zen3", benchmark="odd")
        for i in range(3)
    ]
    found = resolve([*timelines, *strange])
    for machine in MACHINES:
        assert _revisions([*timelines, *strange], found)[f"{machine}/pipe"] == [60]


def test_constant_counts_with_a_step_are_found_exactly() -> None:
    counts = [TimelineValues(m, np.repeat([1000.0, 1020.0], 30), np.arange(60), machine=m, benchmark="n") for m in "ab"]
    assert [[s.index for s in steps] for steps in resolve(counts).steps] == [[30], [30]]


@pytest.mark.parametrize("seed", range(6))
def test_wild_timelines_come_to_an_end_with_orderly_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    timelines = []
    for i in range(12):
        kept = np.sort(rng.choice(150, size=int(rng.integers(5, 150)), replace=False))
        walk = np.cumsum(rng.standard_t(2, 150)) * rng.choice([0.001, 0.01, 0.1])
        common = np.where(np.arange(150) >= 70 + i % 3, 0.05, 0.0)
        values = np.exp(walk + common)[kept]
        timelines.append(
            TimelineValues(f"t{i}", values, kept, machine=f"m{i % 3}", benchmark=f"b{i // 3}", better="higher")
        )
    found = resolve(timelines)
    for timeline, steps in zip(timelines, found.steps, strict=True):
        indices = [step.index for step in steps]
        assert indices == sorted(set(indices))
        assert all(0 < index < len(timeline.values) for index in indices)
        assert [step.revision for step in steps] == timeline.revisions[indices].tolist()
    assert all(event.shifts for event in found.events)


def test_timeline_that_was_decided_upon_shows_no_step_once_more_beside_it() -> None:
    timelines = fleet({("zen5", "a"): ((60, 0.1),)}, machines=["zen5"], benchmarks=["a"])
    resolution = Resolution(timelines, nominate)
    resolution.run()
    assert list(resolution.steps[0]) == [60]
    near, far = 60 + CLEAR, 60 + CLEAR + 1
    assert 0 not in resolution._shifts(near)
    assert 0 in resolution._shifts(far)
