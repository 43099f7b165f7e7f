"""Culprits that make a part of the change, reverts that cannot be had, and searches that must not go on for ever."""

from datetime import timedelta
from pathlib import Path

import pytest

from server.core import clock
from server.core.programs.git import GitError
from server.detection.bisection.knowledge import lock
from server.detection.bisection.step import read_trial
from server.detection.models import Bisection, BisectionStep, Finding
from server.detection.sweep import tend_bisections
from server.lab.models import Session, Trial
from server.sources.models import Revision
from tests.detection.bisecting.world import World, judged, make_world, zen3

pytestmark = pytest.mark.django_db

Kind, Answer = BisectionStep.Kind, BisectionStep.Answer


def begun(world: World, costs: dict[str, float]) -> tuple[Finding, Bisection]:
    machine = zen3()
    world.costs[machine.name] = costs
    finding = judged(world, machine)
    return finding, finding.bisections.get()


def test_a_change_that_grew_in_equal_steps_names_no_single_patch(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6)
    finding, bisection = begun(world, {"p2": 1.25, "p4": 1.25, "p6": 1.25})
    world.run()
    finding.refresh_from_db()
    bisection.refresh_from_db()
    assert (finding.culprit, bisection.state) == (None, Bisection.State.GAVE_UP)
    said = "patch 4 of 6 is where half of the change is crossed, but against its parent it does not make half of"
    assert finding.reason.startswith(said), finding.reason
    assert "it is one of" not in finding.reason


def test_what_others_made_of_the_change_is_told_with_the_culprit(tmp_path: Path) -> None:
    world = make_world(tmp_path, 6)
    finding, _bisection = begun(world, {"p2": 1.2, "p5": 1.5})
    world.run()
    finding.refresh_from_db()
    assert finding.culprit is not None
    assert finding.culprit.sha == world.shas[5]
    # 1.5 of 1.8 is made by it; taking it back leaves the 1.2 of the other.
    assert "(1.50x slower of 1.80x slower in time of mm-basic/fault-4k on zen3)" in finding.reason
    assert "without it 20 % slower of 1.80x slower is left: others made the rest" in finding.reason


def test_a_revert_that_git_can_never_make_ends_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*, head: Revision, culprit: Revision) -> Revision | None:
        raise GitError("git-failed", f"cannot take {culprit.sha} out of {head.sha}")

    monkeypatch.setattr("server.detection.bisection.search.revert_commit", fails)
    world = make_world(tmp_path, 2)
    # Its parent is the good end, so that the check of the culprit is known in the same call.
    finding, bisection = begun(world, {"p1": 1.7})
    world.run()
    bisection.refresh_from_db()
    assert bisection.state == Bisection.State.CHECKING
    late = bisection.state_since - timedelta(hours=7)
    Bisection.objects.filter(pk=bisection.pk).update(state_since=late)
    tend_bisections()
    finding.refresh_from_db()
    assert (finding.state, finding.culprit and finding.culprit.sha) == (Finding.State.CONFIRMED, world.shas[1])
    assert "the kernel without it was not measured: not made: cannot take" in finding.reason
    # What a session told before its kernel failed is judged, stored, and an answer.
    step = bisection.steps.get(kind=Kind.MIDDLE)
    assert step.trial is not None
    step.trial.sessions.update(state=Session.State.FAILED, reason="no login")
    assert read_trial(lock(bisection.pk), step.trial).answer == Answer.BAD


def test_a_checked_culprit_is_told_where_its_revert_is_never_measured(tmp_path: Path) -> None:
    world = make_world(tmp_path, 4)
    finding, bisection = begun(world, {"p2": 1.7})
    for _ in range(20):
        tend_bisections()
        if bisection.steps.filter(kind=Kind.REVERT, answer="").exists():
            break
        world.work()
    bisection.steps.filter(answer="").update(created_at=clock.now() - timedelta(days=4))
    tend_bisections()
    finding.refresh_from_db()
    assert (finding.state, finding.culprit and finding.culprit.sha) == (Finding.State.CONFIRMED, world.shas[2])
    assert "the kernel without it was not measured: zen3-a did not measure a step in 3 days" in finding.reason


def test_hundreds_of_kernels_that_do_not_build_are_not_all_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.detection.bisection.search._MOST_LEFT_OUT", 2)
    world = make_world(tmp_path, 8)
    world.broken_shas = set(world.shas[2:7])
    finding, bisection = begun(world, {"p7": 1.7})
    world.run()
    finding.refresh_from_db()
    assert finding.culprit is None
    assert bisection.steps.filter(answer=Answer.SKIPPED).count() == 2
    assert finding.reason.endswith("2 revisions were tried between that cannot be told")


def test_a_search_whose_commits_are_gone_ends_after_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_bisection: Bisection, index: int) -> Revision:
        raise GitError("git-failed", f"bad object {index}")

    world = make_world(tmp_path, 4)
    finding, bisection = begun(world, {"p2": 1.7})
    monkeypatch.setattr("server.detection.bisection.search.revision_at", fails)
    tend_bisections()
    long_ago = clock.now() - timedelta(days=4)
    Bisection.objects.filter(pk=bisection.pk).update(state_since=long_ago)
    bisection.steps.update(created_at=long_ago)
    tend_bisections()
    finding.refresh_from_db()
    assert finding.state == Finding.State.BISECTING
    Trial.objects.filter(bisection_steps__bisection=bisection).update(answered_at=long_ago)
    tend_bisections()
    finding.refresh_from_db()
    assert (finding.state, finding.reason) == (
        Finding.State.CONFIRMED,
        "its revisions could not be read for 3 days",
    )
