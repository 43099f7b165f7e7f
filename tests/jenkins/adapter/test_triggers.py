"""Triggers whose answers get lost."""

import pytest

from server.lab import rounds
from server.lab.dispatch.jenkins.adapter import JenkinsDispatcher
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.models import Attempt, AttemptState
from tests.jenkins.adapter.looking import MACHINE, count_of, fresh, posts, run_of, work_of
from tests.lab.worlds import JenkinsWorld, starts, until

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("wrong", ["lost", "500", "html", "closed"])
def test_trigger_whose_answer_got_lost_is_not_repeated_blindly(
    world: JenkinsWorld, attempt: Attempt, wrong: str
) -> None:
    world.server.answer_with(wrong, path="POST .*buildWithParameters", times=1)  # type: ignore[arg-type]  # (its words)
    rounds.reconcile_attempts()
    assert (count_of(attempt), run_of(attempt).queue_id) == (1, None)
    assert fresh(attempt).state == AttemptState.SUBMITTING
    until(lambda: rounds.reconcile_attempts() and fresh(attempt).state == AttemptState.QUEUED)
    until(lambda: starts(world, attempt.key) == 1)
    # What took effect is adopted; what the server never did is done once more.
    assert count_of(attempt) == posts(world) == (2 if wrong == "closed" else 1)
    assert len(world.server.builds_of(attempt.key)) == 1


def test_trigger_without_effect_is_given_up_after_three(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.answer_with("closed", path="POST .*buildWithParameters")
    until(lambda: rounds.reconcile_attempts() and fresh(attempt).state == AttemptState.LOST)
    assert count_of(attempt) == posts(world) == 3
    assert "triggered 3 times" in fresh(attempt).reason
    assert fresh(attempt).session.state == "planned"  # type: ignore[union-attr]


def test_worker_that_dies_before_or_after_the_trigger_loses_nothing(world: JenkinsWorld, attempt: Attempt) -> None:
    JenkinsRun.objects.create(attempt=attempt, job=f"tidemark-session-{MACHINE}")
    Attempt.objects.update(posts=1)
    world.client.trigger(f"tidemark-session-{MACHINE}", attempt.key)
    until(lambda: rounds.reconcile_attempts() and fresh(attempt).state == AttemptState.QUEUED)
    assert posts(world) == 1


def test_two_dispatchers_trigger_once(world: JenkinsWorld, attempt: Attempt) -> None:
    other = JenkinsDispatcher(world.new_client())
    world.port.submit(work_of(attempt))
    other.submit(work_of(attempt))
    assert posts(world) == 1
    other.client.close()
