"""Stopping, down to cutting an agent off."""

from datetime import timedelta

import pytest

from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.dispatch.jenkins import adapter
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsNode
from server.lab.dispatch.jenkins.values import Forbidden
from server.lab.models import Attempt, AttemptState, Machine
from server.lab.port import Observed
from tests.builders import because
from tests.jenkins.adapter.looking import AGENT, MACHINE, claim, fresh, run_of, seen, started
from tests.lab.worlds import JenkinsWorld, until

pytestmark = pytest.mark.django_db


def test_frozen_agent_is_cut_off_and_its_host_quarantined(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)
    world.server.freeze_agent(MACHINE)
    ends.cancel_attempt(fresh(attempt), because("nobody wants it"), losing=True)
    rounds.reconcile_attempts()
    rounds.reconcile_attempts()
    assert run_of(attempt).stop_asked_at is not None
    assert fresh(attempt).state == AttemptState.CANCELING
    monkeypatch.setattr(adapter, "_STOP_PATIENCE", timedelta())
    rounds.reconcile_attempts()
    assert run_of(attempt).disconnect_asked_at is not None
    assert fresh(attempt).state == AttemptState.LOST
    machine = Machine.objects.get()
    assert (machine.health, attempt.key in machine.health_reason) == (Machine.Health.QUARANTINED, True)
    assert JenkinsNode.objects.get(name=MACHINE).held_for == "quarantine"
    world.server.thaw(MACHINE)


def test_canceled_attempt_ends_when_its_lease_does(world: JenkinsWorld, attempt: Attempt) -> None:
    (world.folder / "stubborn").touch()
    started(world, attempt)
    claim(attempt)
    ends.cancel_attempt(fresh(attempt), because("nobody wants it"))
    assert not life.renew_lease(attempt=fresh(attempt), agent=AGENT, progress="boot 1")
    until(lambda: rounds.reconcile_attempts() and seen(world, attempt) is Observed.LEFT)
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.CANCELING, "its program lives on beside what would come next"
    Attempt.objects.update(lease_until="2020-01-01T00:00:00Z")
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.CANCELED
    assert fresh(attempt).session.state == "canceled"  # type: ignore[union-attr]


def test_build_that_we_may_not_stop_is_cut_off_all_the_same(
    world: JenkinsWorld, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world, attempt)

    def refused(_job: str, _number: int) -> None:
        raise Forbidden("not this user", "Job/Cancel")

    monkeypatch.setattr(world.client, "stop", refused)
    monkeypatch.setattr(adapter, "_STOP_PATIENCE", timedelta())
    ends.cancel_attempt(fresh(attempt), because("nobody wants it"), losing=True)
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.CANCELING
    assert "not this user" in JenkinsController.objects.get().trouble
    rounds.reconcile_attempts()
    assert fresh(attempt).state == AttemptState.LOST
