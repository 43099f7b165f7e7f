"""A step back may mend a finding where most of what regressed goes back."""

import pytest
from pytest_django import DjangoAssertNumQueries

from server.detection.branches.change_points import change_points_after
from server.detection.models import ChangePoint, Finding, Timeline
from tests.detection.heads.histories import History

pytestmark = pytest.mark.django_db


@pytest.fixture
def history() -> History:
    """At place 103 three cases regressed on one microarchitecture and one on another, where one got better."""
    history = History({"h1": "haswell", "z1": "zen3"})
    history.head()
    history.passed(8)
    history.steps(103, {("h1", 0): 0.1, ("h1", 1): 0.1, ("h1", 2): 0.1, ("z1", 0): 0.1, ("z1", 1): -0.1})
    ChangePoint.objects.update(state=ChangePoint.State.SETTLED)
    Finding.objects.update(state=Finding.State.CONFIRMED)
    return history


def places() -> list[int]:
    return [one.place for one in change_points_after(Finding.objects.earliest("pk"))]


def test_most_of_what_regressed_goes_back_on_each_microarchitecture(history: History) -> None:
    assert places() == []
    history.steps(106, {("h1", 0): -0.08, ("h1", 1): -0.08, ("z1", 0): -0.08})
    assert places() == [106]


def test_heads_are_not_read_for_one_that_never_went_back(
    history: History, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    """Each sweep asks it of each regression: the cost must not grow with the branch."""
    history.steps(106, {("h1", 0): -0.02})
    finding = Finding.objects.earliest("pk")
    with django_assert_max_num_queries(3):
        assert change_points_after(finding) == []


def test_machines_may_show_it_a_head_apart(history: History) -> None:
    history.steps(106, {("h1", 0): -0.08, ("h1", 1): -0.08})
    assert places() == []
    history.steps(107, {("z1", 0): -0.08})
    assert places() == [107]


@pytest.mark.parametrize(
    "effects",
    [
        {("h1", 0): -0.08, ("z1", 0): -0.08},
        {("h1", 0): -0.08, ("h1", 1): -0.08, ("h1", 2): -0.08},
        {("h1", 0): -0.04, ("h1", 1): -0.04, ("z1", 0): -0.08},
        {("h1", 0): 0.08, ("h1", 1): 0.08, ("z1", 0): 0.08},
        {("h1", 0): -0.08, ("h1", 1): -0.08, ("z1", 1): 0.08},
    ],
)
def test_another_change_of_some_of_its_cells_does_not_mend_it(
    history: History, effects: dict[tuple[str, int], float]
) -> None:
    history.steps(106, effects)
    assert places() == []


def test_a_machine_that_is_measured_no_more_is_not_waited_for(history: History) -> None:
    Timeline.objects.filter(machine__name="z1").update(last_place=104)
    history.steps(106, {("h1", 0): -0.08, ("h1", 1): -0.08})
    assert places() == [106]
