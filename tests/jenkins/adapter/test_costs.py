"""What a look costs, and clocks."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from server.lab import rounds, work
from server.lab.dispatch.jenkins.models import JenkinsController
from server.lab.models import Attempt, AttemptState
from server.lab.port import DispatchError, Observed
from tests.jenkins.adapter.looking import fresh, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, let_end, new_work, starts, until

pytestmark = pytest.mark.django_db


def test_look_costs_the_same_for_one_and_for_many(world: JenkinsWorld, attempt: Attempt) -> None:
    many = [attempt, *(new_work(f"vm-{number}")[0] for number in range(8))]
    world.define()
    rounds.reconcile_attempts()
    works = [work.work_of(one) for one in many]
    for some in (works[:1], works):
        before = world.client.requests
        world.port.look(some)
        assert world.client.requests - before == 3


def test_round_asks_the_database_as_often_for_one_as_for_many(world: JenkinsWorld, attempt: Attempt) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            rounds.reconcile_attempts()
        return len(captured)

    def settle() -> int:
        until(lambda: rounds.reconcile_attempts() and all(starts(world, key) for key in keys()))
        rounds.reconcile_attempts()
        return queries()

    def keys() -> list[str]:
        return list(Attempt.objects.values_list("key", flat=True))

    one = settle()
    for number in range(6):
        new_work(f"vm-{number}")
    world.define()
    assert settle() <= one


def test_clock_of_the_controller_is_shown_and_nothing_depends_on_it(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.skew_clock(-86_400)
    started(world, attempt)
    skew = JenkinsController.objects.get().clock_skew_seconds
    assert skew == pytest.approx(-86_400, abs=5)
    let_end(world, attempt.key)
    until(lambda: seen(world, attempt) is Observed.ENDED)


def test_half_an_answer_changes_nothing(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.cut_network("half")
    with pytest.raises(DispatchError):
        world.port.look([work_of(attempt)])
    assert fresh(attempt).state == AttemptState.SUBMITTING
