"""A controller that dies or answers nonsense."""

import pytest

from server.core.errors import DomainError
from server.lab import rounds
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsRun
from server.lab.models import Attempt, AttemptState
from server.lab.port import Observed
from tests.jenkins.adapter.looking import MACHINE, claim, fresh, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, new_work, until

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("wrong", ["html", "truncated", "types", "empty", "closed", "503"])
def test_nonsense_changes_no_attempt_and_is_told(world: JenkinsWorld, attempt: Attempt, wrong: str) -> None:
    started(world, attempt)
    before = fresh(attempt)
    world.server.answer_with(wrong)  # type: ignore[arg-type]  # (its words)
    assert not rounds.reconcile_attempts()
    row = JenkinsController.objects.get()
    assert row.unreachable_since is not None
    assert row.trouble
    assert (fresh(attempt).state, fresh(attempt).reason) == (before.state, before.reason)
    world.server.restore_network()
    assert rounds.reconcile_attempts()
    row.refresh_from_db()
    assert not row.unreachable_since
    assert row.trouble == ""


def test_controller_that_was_killed_loses_what_nobody_claimed(world: JenkinsWorld, attempt: Attempt) -> None:
    started(world, attempt)
    world.server.restart(kill=True, down_seconds=0.05)
    until(lambda: rounds.reconcile_attempts() and fresh(attempt).state == AttemptState.LOST, seconds=20)
    with pytest.raises(DomainError, match="lost"):
        claim(attempt)


def test_claimed_attempt_outlives_its_controller_as_long_as_it_beats(world: JenkinsWorld, attempt: Attempt) -> None:
    started(world, attempt)
    claim(attempt)
    world.server.restart(kill=True, down_seconds=0.05)
    until(lambda: seen(world, attempt) is Observed.ABSENT)
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.RUNNING
    Attempt.objects.update(lease_until="2020-01-01T00:00:00Z")
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.LOST


def test_queue_ids_that_are_given_out_again_cancel_nobody_else(world: JenkinsWorld, attempt: Attempt) -> None:
    other, _ = new_work("vm-zen")
    world.define()
    world.server.node(MACHINE).connected = world.server.node("vm-zen").connected = False
    world.server.save_queue()
    rounds.reconcile_attempts()
    old = {key: JenkinsRun.objects.get(attempt__key=key).queue_id for key in (attempt.key, other.key)}
    world.server.restart(kill=True, down_seconds=0.05)
    world.client.trigger("tidemark-session-vm-zen", other.key)
    taken = [item.id for item in world.client.queue()]
    assert taken[0] in old.values(), "the id is another's now"
    assert world.port.cancel(work_of(attempt)) in {True, False}
    until(lambda: world.port.cancel(work_of(attempt)))
    assert world.server.waiting_keys() == [other.key]
