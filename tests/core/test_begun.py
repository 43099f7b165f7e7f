"""A task that ends its process again and again is given up; any other goes on."""

from datetime import timedelta

import pytest
import time_machine

from server.core import clock
from server.core.access.tries import GIVEN_UP, MOST_BEGUN, OutOfBoundsError, counted, forget_begun, given_up
from server.core.database import advisory_lock
from server.core.models import Begun

pytestmark = pytest.mark.django_db
KEY = "sources.apply_series 7"
AN_HOUR = timedelta(hours=1)


def killed(times: int = 1, key: str = KEY, ago: timedelta = AN_HOUR) -> None:
    """Its process was killed: it said that it began, and nothing more."""
    for _ in range(times):
        Begun.objects.create(key=key, at=clock.now() - ago)


def begins(key: str = KEY, *, alone: bool = False) -> bool:
    with counted(key, alone=alone) as may_begin:
        return may_begin


def test_task_that_killed_its_process_three_times_in_a_row_is_given_up_for_a_day() -> None:
    killed(MOST_BEGUN - 1)
    with pytest.raises(OutOfBoundsError), counted(KEY):
        raise MemoryError
    with time_machine.travel(clock.now() + AN_HOUR):
        assert not begins()
        assert begins("sources.apply_series 8")
        (told,) = given_up()
        assert (told.task, told.times) == (KEY, MOST_BEGUN)
    with time_machine.travel(clock.now() + GIVEN_UP + AN_HOUR):
        assert given_up() == []
        assert begins()
        forget_begun()
    assert not Begun.objects.exists()


def test_task_that_came_to_an_end_is_as_good_as_new() -> None:
    killed(MOST_BEGUN - 1)
    assert begins()
    killed(MOST_BEGUN - 1)
    assert begins()


def test_error_is_an_end() -> None:
    for _ in range(MOST_BEGUN + 1):
        with pytest.raises(ValueError, match="broken"), counted(KEY, alone=True):
            raise ValueError("broken")
    assert begins(alone=True)


def test_tasks_that_are_under_way_elsewhere_are_no_dead_ones() -> None:
    killed(MOST_BEGUN, ago=timedelta(seconds=20))
    assert begins()
    assert not begins(alone=True)


def test_whoever_finds_another_one_at_it_has_proved_nothing() -> None:
    """He ends well at once, and would forget the ends of those that worked."""
    killed(MOST_BEGUN - 1)
    killed(ago=timedelta(seconds=20))
    assert begins()
    assert begins()
    with time_machine.travel(clock.now() + AN_HOUR):
        assert not begins()


def test_run_that_held_its_lock_forgets_the_dead_of_a_moment_ago_and_one_that_found_it_taken_does_not() -> None:
    """Three kills within a task's time, and runs that end well after each: they are not three in a row."""
    killed(MOST_BEGUN, ago=timedelta(seconds=20))
    with advisory_lock("tests.begun"), counted(KEY) as may_begin, advisory_lock("tests.begun") as free:
        assert may_begin
        assert not free
    assert Begun.objects.count() == MOST_BEGUN
    with counted(KEY) as may_begin, advisory_lock("tests.begun") as free:
        assert may_begin
        assert free
    assert not Begun.objects.exists()


def test_whoever_holds_the_lock_has_done_it() -> None:
    killed(MOST_BEGUN - 1)
    killed(ago=timedelta(seconds=20), key="sources.apply_series 8")
    assert begins(alone=True)
    assert list(Begun.objects.values_list("key", flat=True)) == ["sources.apply_series 8"]
