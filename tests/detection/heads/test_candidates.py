"""Suspects of one change are one finding, between heads that surely have the old and the new level."""

import pytest

from server.detection.models import ChangePoint, Finding, Timeline
from server.lab.models import Trial
from tests.builders import because
from tests.detection.heads.histories import History

pytestmark = pytest.mark.django_db


@pytest.fixture
def history() -> History:
    history = History({"h1": "haswell", "h2": "haswell", "z1": "zen3", "z2": "zen3"})
    history.head()
    history.passed(8)
    return history


def boundaries() -> list[tuple[int, int]]:
    rows = Finding.objects.order_by("pk")
    places = {head.revision_id: head.place for head in Timeline.objects.earliest("pk").branch.measured.all()}
    return [(places[row.before_id], places[row.after_id]) for row in rows if row.before_id and row.after_id]


def test_the_confirmation_measures_what_moved_and_each_other_microarchitecture_once(history: History) -> None:
    history.steps(105, {("h1", 1): 0.1})
    finding = Finding.objects.select_related("before", "after", "trial").get()
    trial = finding.trial
    assert trial
    assert (trial.purpose, trial.base, trial.patched) == (Trial.Purpose.CONFIRM, finding.before, finding.after)
    assert [machine.name for machine in trial.machines.order_by("name")] == ["h1", "h2", "z1"]
    assert trial.benchmarks == ["mm-basic/case-1"]
    assert boundaries() == [(104, 105)]


def test_timelines_that_move_at_one_head_are_one_split_finding(history: History) -> None:
    history.steps(105, {("h1", 0): 0.1, ("z1", 0): -0.1, ("z2", 2): -0.1})
    finding = Finding.objects.get()
    assert finding.kind == Finding.Kind.SPLIT
    assert finding.change_points.count() == 3


def test_the_same_step_seen_later_joins_whichever_case_shows_it(history: History) -> None:
    history.steps(105, {("h1", 0): 0.1})
    history.steps(105, {("z1", 2): 0.1})
    assert Finding.objects.get().change_points.count() == 2


def test_the_same_cell_a_head_off_joins_what_fresh_boots_have_seen(history: History) -> None:
    history.steps(105, {("h1", 0): 0.1})
    Finding.objects.update(state=Finding.State.CONFIRMED)
    history.steps(106, {("h2", 0): 0.1})
    assert Finding.objects.get().change_points.count() == 2


@pytest.mark.parametrize("case", [0, 2])
def test_a_step_that_was_published_with_another_change_nearby_is_one_of_its_own(history: History, case: int) -> None:
    history.steps(104, {("h1", 0): 0.1})
    Finding.objects.update(state=Finding.State.CONFIRMED)
    history.steps(104, {("z1", case): 0.1, ("z2", case): 0.1}, really=107)
    assert boundaries() == [(103, 104), (106, 107)]
    assert Finding.objects.latest("pk").change_points.count() == 2


def test_a_step_back_soon_after_does_not_make_the_step_lie_elsewhere(history: History) -> None:
    history.steps(104, {("h1", 0): 0.1})
    history.steps(106, {("h1", 0): -0.1})
    history.steps(104, {("h2", 0): 0.1})
    assert boundaries() == [(103, 104), (105, 106)]


def test_before_that_two_sharp_steps_are_two_questions(history: History) -> None:
    history.steps(105, {("h1", 0): 0.1})
    history.steps(106, {("h2", 0): 0.1})
    assert boundaries() == [(104, 105), (105, 106)]


def test_another_case_at_another_head_is_another_change(history: History) -> None:
    history.steps(104, {("h1", 0): 0.1})
    history.steps(106, {("h1", 1): 0.1})
    assert boundaries() == [(103, 104), (105, 106)]


def test_a_step_back_is_another_change(history: History) -> None:
    history.steps(104, {("h1", 0): 0.1})
    history.steps(105, {("h1", 0): -0.1})
    assert [finding.kind for finding in Finding.objects.order_by("pk")] == ["regressed", "improved"]


def test_a_small_step_is_looked_for_between_more_heads_but_not_beyond_another_step(history: History) -> None:
    history.steps(103, {("h1", 0): 0.1})
    history.steps(106, {("h1", 0): -0.002})
    assert boundaries()[1] == (103, 109)


def test_machines_together_place_a_small_step_better_than_one(history: History) -> None:
    history.steps(105, {("h1", 0): 0.003})
    assert boundaries() == [(102, 107)]
    ChangePoint.objects.all().delete()
    Finding.objects.all().delete()
    history.steps(105, {("z1", 2): 0.003, ("z2", 2): 0.003, ("h2", 2): 0.003})
    assert boundaries() == [(104, 105)]


def test_what_fresh_boots_refuted_is_not_asked_again_and_other_cells_are(history: History) -> None:
    history.steps(105, {("h1", 0): 0.1})
    ChangePoint.objects.update(state=ChangePoint.State.WITHDRAWN)
    Finding.objects.get().advance(Finding.State.INVALID, because("not seen again"))
    ChangePoint.objects.update(first_place=104)
    history.steps(105, {("h1", 0): 0.1})
    assert Finding.objects.count() == 1
    history.steps(105, {("z1", 1): 0.1})
    assert boundaries() == [(104, 105), (103, 106)]
