"""Heads enter timelines once and in order; steps become change points, those of machines become questions."""

import re

import pytest
from django.db import IntegrityError
from pytest_django.fixtures import Settings

from server.core.reasons import Because
from server.detection.branches import observation
from server.detection.branches.observation import observe_due
from server.detection.models import (
    ChangePoint,
    Comparison,
    Finding,
    FleetState,
    MachineQuestion,
    Timeline,
    TimelinePoint,
)
from server.detection.on_trial_over import answer_branch
from server.detection.sweep import tend_branches
from server.lab.models import Trial
from tests.detection.heads.histories import History, branch_differences

pytestmark = pytest.mark.django_db
LAB = {"h1": "haswell", "h2": "haswell", "z1": "zen3"}


@pytest.fixture
def history() -> History:
    return History(LAB)


def test_a_head_enters_once_however_often_its_trial_is_answered(history: History) -> None:
    head = history.head()
    for _ in range(2):
        answer_branch(head.trial)
        tend_branches()
    head.refresh_from_db()
    assert head.observed_at
    assert TimelinePoint.objects.count() == 9
    assert set(Timeline.objects.values_list("points_seen", "last_place")) == {(1, head.place)}


def test_a_later_head_waits_for_an_earlier_one(history: History) -> None:
    first, second = history.planned(), history.planned()
    answer_branch(history.measured(second))
    assert not TimelinePoint.objects.exists()
    answer_branch(history.measured(first))
    places = list(Timeline.objects.earliest("pk").points.values_list("place", flat=True))
    assert places == [first.place, second.place]


def test_patience_ends_and_what_comes_late_takes_its_place(history: History, settings: Settings) -> None:
    history.heads(3)
    late = history.planned()
    settings.HEAD_PATIENCE_HOURS = 0.0
    after = history.head()
    assert FleetState.objects.get().newest_place == after.place
    answer_branch(history.measured(late))
    watch = Timeline.objects.earliest("pk").watch
    assert watch["revisions"] == [101, 102, 103, 104, 105]
    assert watch["indices"] == [0, 1, 2, 3, 4]
    assert not list(branch_differences())


def test_what_a_machine_measured_while_it_was_changed_is_no_point(history: History) -> None:
    history.heads(1)
    trial = history.measured(head := history.planned())
    Comparison.objects.filter(session__trial=trial, session__machine__name="z1").update(
        reason_code=Because.OTHER_MACHINE
    )
    answer_branch(trial)
    shown = TimelinePoint.objects.filter(head=head).values_list("timeline__machine__name", flat=True)
    assert set(shown) == {"h1", "h2"}
    assert not list(branch_differences())


def test_a_branch_that_cannot_be_looked_at_does_not_stand_in_the_way(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.measured(history.planned())

    def taken(*_: object) -> None:
        raise IntegrityError("this place is taken")

    monkeypatch.setattr(observation, "publish", taken)
    assert tend_branches() == 0
    assert not TimelinePoint.objects.exists()


def test_a_head_that_cannot_be_measured_is_passed(history: History) -> None:
    broken, head = history.planned(), history.planned()
    Trial.objects.filter(pk=broken.trial_id).update(state=Trial.State.FAILED)
    answer_branch(history.measured(head))
    assert set(TimelinePoint.objects.values_list("place", flat=True)) == {head.place}


def test_a_step_on_all_machines_becomes_one_finding_whatever_shows_it_later(history: History) -> None:
    history.heads(13)
    history.heads(15, history.everywhere(0, 1.08))
    points = ChangePoint.objects.select_related("timeline__machine")
    assert {point.timeline.machine.name for point in points} == set(LAB)
    assert {(point.before_place, point.place) for point in points} == {(113, 114)}
    finding = Finding.objects.get()
    assert {point.finding_id for point in points} == {finding.pk}
    assert finding.kind == Finding.Kind.REGRESSED
    assert "% slower in time of mm-basic/case-0 on haswell" in finding.headline
    assert finding.headline.endswith("to be confirmed by fresh boots.")
    shown = points.filter(timeline__case__name="case-0")
    assert list(shown.values_list("place", flat=True)) == [114, 114, 114]
    assert not list(branch_differences())


def test_a_machine_that_moves_with_all_its_cases_is_a_question_and_no_finding() -> None:
    history = History(LAB, cases=6)
    history.heads(13)
    history.heads(6, history.all_of("z1", 1.06))
    question = MachineQuestion.objects.get()
    assert (question.kind, question.machine.name, question.place) == ("event", "z1", 114)
    assert not Finding.objects.exclude(state=Finding.State.INVALID).exists()
    assert not list(branch_differences())


def test_a_question_about_a_machine_tells_the_metric_and_the_change_itself() -> None:
    """Not the logarithm of the ratio, which for half as much again is 40.5 %."""
    history = History(LAB, cases=6)
    history.heads(13)
    history.heads(6, history.all_of("z1", 1.5))
    told = re.findall(r"time of \S+/case-\d ([+-]\d+)\.\d %", MachineQuestion.objects.get().detail)
    assert len(told) == 3
    assert all(49 <= int(percent) <= 51 for percent in told)


def test_a_head_enters_whole_or_not_at_all(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = history.measured(history.planned())

    def killed(*_: object) -> None:
        raise ConnectionError("the database is gone")

    with monkeypatch.context() as broken:
        broken.setattr(observation, "publish", killed)
        with pytest.raises(ConnectionError):
            answer_branch(trial)
    assert not TimelinePoint.objects.exists()
    assert not FleetState.objects.exists()
    assert tend_branches() == 1
    assert TimelinePoint.objects.count() == 9
    assert not list(branch_differences())


def test_changed_ratio_is_a_difference(history: History) -> None:
    history.heads(3)
    point = TimelinePoint.objects.earliest("pk")
    TimelinePoint.objects.filter(pk=point.pk).update(ratio=2.0)
    assert [str(one).split(",")[0] for one in branch_differences()] == [f"timeline {point.timeline_id}"]


def test_nothing_is_due_while_the_first_head_is_measured(history: History) -> None:
    history.planned()
    assert observe_due(history.branch.pk, history.reference.pk, most=5) == 0
