"""What people say about a finding without measuring: it is another one's change, or a commit to come mends it."""

import pytest

from server.core.errors import DomainError
from server.core.models import Transition
from server.detection.lifecycle.remarks import mark_duplicate, promise_fix
from server.detection.models import Finding
from tests.builders import build_finding, build_revision, build_series
from tests.detection.lifecycle.mending import World

pytestmark = pytest.mark.django_db


def test_a_commit_of_the_promised_subject_is_measured_when_it_comes(world: World) -> None:
    world.commit("mm: Be quick")
    world.look()
    assert promise_fix(world.finding, "mm: Be quick again", actor="ada")
    assert not promise_fix(world.finding, "mm:  Be quick again ", actor="bob")
    world.look()
    assert world.fix_trials() == []
    world.commit("mm: Be quick again, but slowly")
    fix = world.commit("mm: Be quick again\n\nWithout any tag.")
    world.look()
    assert [trial.patched.sha for trial in world.fix_trials()] == [fix]


def test_a_commit_of_the_promised_subject_that_is_there_already_is_found(world: World) -> None:
    fix = world.commit("mm: Be quick again")
    world.commit("Go on")
    world.look()
    assert world.fix_trials() == []
    promise_fix(world.finding, "mm: Be quick again", actor="ada")
    world.look()
    assert [trial.patched.sha for trial in world.fix_trials()] == [fix]


def test_a_promise_needs_a_branch_somebody_and_a_subject(world: World) -> None:
    with pytest.raises(DomainError, match="next version"):
        promise_fix(build_finding(build_series()), "mm: Be quick again", actor="ada")
    for subject, actor in (("", "ada"), ("mm: Be quick again", " ")):
        with pytest.raises(DomainError):
            promise_fix(world.finding, subject, actor=actor)


def test_a_finding_stands_down_for_another_and_both_say_so() -> None:
    first, second = build_finding(build_series()), build_finding(build_series())
    assert mark_duplicate(first, second, actor="ada", reason="the same patch in two trees")
    assert first.state == Finding.State.SUPERSEDED
    assert first.reason == f"the same as finding {second.pk}: the same patch in two trees"
    line = Transition.objects.filter(subject="finding", subject_id=second.pk).latest("pk")
    assert (line.actor, line.before, line.after) == ("ada", "confirmed", "confirmed")
    assert not mark_duplicate(first, second, actor="ada", reason="again")


def test_one_that_stood_down_stands_down_for_another_when_it_is_said_so() -> None:
    first, second, third = (build_finding(build_series()) for _ in range(3))
    mark_duplicate(first, second, actor="ada", reason="so")
    assert mark_duplicate(first, third, actor="bob", reason="no, that one")
    first.refresh_from_db()
    assert (first.state, first.same_as) == (Finding.State.SUPERSEDED, third)
    assert first.reason == f"the same as finding {third.pk}: no, that one"
    line = Transition.objects.filter(subject="finding", subject_id=second.pk).latest("pk")
    assert line.reason == f"finding {first.pk} is the same as {third.pk}, not as this"


def test_one_that_gave_its_timelines_away_says_which_one_stands(world: World) -> None:
    branch = world.finding.branch
    second, third = (
        Finding.objects.create(
            branch=branch, before=build_revision(), after=build_revision(), state="confirmed", kind="regressed",
            virtual=False, trace="f" * 16,
        )
        for _ in range(2)
    )  # fmt: skip
    mark_duplicate(second, world.finding, actor="ada", reason="so")
    with pytest.raises(DomainError, match=f"finding {world.finding.pk}, which has its timelines: that one stands"):
        mark_duplicate(second, third, actor="ada", reason="so")


def test_what_cannot_be_a_duplicate_is_refused() -> None:
    first, second = build_finding(build_series()), build_finding(build_series(), state=Finding.State.INVALID)
    for of in (first, second):
        with pytest.raises(DomainError):
            mark_duplicate(first, of, actor="ada", reason="so")
    with pytest.raises(DomainError):
        mark_duplicate(second, first, actor="ada", reason="so")
    first.refresh_from_db()
    assert first.state == Finding.State.CONFIRMED
