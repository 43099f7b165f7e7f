"""One bisection from both ends to the culprit."""

from pathlib import Path

import pytest

from server.builds.models import Build
from server.detection.bisection.knowledge import kernels_of
from server.detection.models import Bisection, BisectionStep, Finding
from server.lab.models import Boot, Session, Trial
from server.sources.models import Revision
from tests.detection.bisecting.world import World, judged, make_world, zen3

pytestmark = pytest.mark.django_db

Kind, Answer = BisectionStep.Kind, BisectionStep.Answer


def told(bisection: Bisection) -> list[tuple[str, int | None, str]]:
    return [(step.kind, step.index, step.answer) for step in bisection.steps.order_by("number")]


def searched(world: World, costs: dict[str, float]) -> tuple[Finding, Bisection]:
    """The finding and its only bisection, both at their ends."""
    machine = zen3()
    world.costs[machine.name] = costs
    finding = judged(world, machine)
    world.run()
    finding.refresh_from_db()
    return finding, finding.bisections.get()


def test_a_change_is_found_at_its_patch_and_checked_twice(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6)
    finding, bisection = searched(world, {"p4": 1.7})
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[4]
    assert finding.reason.startswith("made by patch 4 of 6: mm: Change 4 (1."), finding.reason
    assert finding.reason.endswith("without it the change is gone")
    # The finding's own boots told the ends; the culprit and what is left without it are measured on their own.
    assert told(bisection) == [
        (Kind.ENDS, 6, Answer.BAD),
        (Kind.MIDDLE, 3, Answer.GOOD),
        (Kind.MIDDLE, 4, Answer.BAD),
        (Kind.CULPRIT, 4, Answer.BAD),
        (Kind.REVERT, None, Answer.GOOD),
    ]
    check = next(row for row in finding.checks if row["name"] == "bisection")
    assert (check["outcome"], check["machine"]) == ("passed", "zen3-a")


def test_steps_measure_the_target_alone_with_half_the_change_as_limit(tmp_path: Path) -> None:
    _finding, bisection = searched(make_world(tmp_path, 2), {"p1": 1.21})
    trial = bisection.steps.get(kind=Kind.MIDDLE).trial
    assert trial is not None
    assert trial.benchmarks == ["mm-basic/fault-4k"]
    assert trial.min_effect == pytest.approx(0.1, abs=0.01)
    assert [machine.name for machine in trial.machines.all()] == ["zen3-a"]


def test_the_last_patch_needs_no_boots_to_be_taken_back(tmp_path: Path) -> None:
    world = make_world(tmp_path, 2)
    finding, bisection = searched(world, {"p2": 0.8})
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[2]
    revert = bisection.steps.get(kind=Kind.REVERT)
    assert (revert.answer, revert.trial, revert.reason) == (Answer.GOOD, None, "the same source as patch 1 of 2")
    assert not Trial.objects.filter(purpose=Trial.Purpose.REVERT).exists()


def test_kernels_that_do_not_build_are_skipped_and_the_search_goes_on_beside_them(tmp_path: Path) -> None:
    # Patch 4 breaks the build, patch 5 mends it by taking the file away: only prefix 4 does not build.
    world = make_world(tmp_path, 8)
    world.broken_shas = {world.shas[4]}
    finding, bisection = searched(world, {"p6": 1.7})
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[6]
    assert (Kind.MIDDLE, 4, Answer.SKIPPED) in told(bisection)
    assert "does not build" in bisection.steps.get(answer=Answer.SKIPPED).reason


def test_only_skipped_revisions_left_give_a_range(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    world.dead_shas = {world.shas[2], world.shas[3]}
    finding, bisection = searched(world, {"p3": 1.7})
    assert finding.state == Finding.State.CONFIRMED
    assert finding.culprit is None
    assert bisection.state == Bisection.State.FOUND
    assert finding.reason.startswith("one of 3 revisions (patch 2 of 4, patch 3 of 4, patch 4 of 4)")
    assert all("does not boot" in step.reason for step in bisection.steps.filter(answer=Answer.SKIPPED))


def test_the_same_code_is_answered_without_boots(tmp_path: Path) -> None:
    # Of six patches only the second and the fifth change code, so that all between run one kernel.
    world = make_world(tmp_path, 6)
    world.comments = {"p1", "p3", "p4", "p6"}
    finding, bisection = searched(world, {"p5": 1.7})
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[5]
    # They were asked for, and then their kernels came out as known ones.
    assert bisection.steps.get(index=4).reason == "the same code as patch 3 of 6"
    assert bisection.steps.get(kind=Kind.MIDDLE, index=5).reason == "the same code as patch 6 of 6"
    assert bisection.steps.get(kind=Kind.REVERT).reason == "the same code as patch 3 of 6"
    # Measured: both ends, patch 3, and the culprit on its parent.
    assert Session.objects.filter(boots__state=Boot.State.MEASURED).distinct().count() == 3
    assert not bisection.steps.filter(index=4, answer=Answer.BAD).exists()


def test_a_revision_that_moved_the_other_way_is_good(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    finding, bisection = searched(world, {"p2": 0.5, "p3": 4.0})
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[3]
    step = bisection.steps.get(kind=Kind.MIDDLE, index=2)
    assert (step.answer, "the other way" in step.reason) == (Answer.GOOD, True)


def test_what_cannot_be_told_twice_is_left_out(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    world.wild_shas = {world.shas[2]}
    finding, bisection = searched(world, {"p2": 1.7})
    middle = list(bisection.steps.filter(kind=Kind.MIDDLE, index=2))
    assert [step.answer for step in middle] == [Answer.UNSURE, Answer.UNSURE]
    assert finding.culprit is None
    assert finding.reason.startswith("one of 2 revisions (patch 2 of 4, patch 3 of 4)")


def test_a_culprit_that_later_patches_build_on_is_told_without_its_revert(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, edit=lambda n: {f"p{n}": "x\n", "mm/memory.c": f"line {n}\n"})
    finding, bisection = searched(world, {"p1": 1.7})
    assert finding.culprit is not None
    assert bisection.steps.get(kind=Kind.REVERT).answer == Answer.SKIPPED
    assert "cannot be taken back: later ones build on it" in finding.reason


def test_a_change_that_stays_without_its_culprit_is_said(tmp_path: Path) -> None:
    # Either of two patches alone slows the machine down.
    world = make_world(tmp_path, 4)
    world.either = {"p2", "p3"}
    finding, bisection = searched(world, {"either": 1.7})
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[2]
    assert bisection.steps.get(kind=Kind.REVERT).answer == Answer.BAD
    assert "but without it the change is still there" in finding.reason
    check = next(row for row in finding.checks if row["name"] == "bisection")
    assert check["outcome"] == "failed"


def test_what_a_series_says_of_its_own_kernels_is_not_believed_of_a_branch(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6)
    _finding, bisection = searched(world, {"p4": 1.7})
    one, other = (Build.objects.get(revision__sha=world.shas[index]) for index in (3, 4))
    Build.objects.filter(pk=other.pk).update(kernel_hash=one.kernel_hash)
    # The branch of this world holds them, for speed; no watched tree does.
    Revision.objects.filter(sha__in=world.shas[1:]).update(foreign=True)
    assert kernels_of(bisection).same(3, 4)
    bisection.finding.series = None
    assert not kernels_of(bisection).same(3, 4)
    assert kernels_of(bisection).same(3, 3)
