"""Machines that boot themselves, and whose nodes are held meanwhile."""

import pytest

from server.core.errors import DomainError
from server.lab import attempts, rounds
from server.lab.arrivals import arrive
from server.lab.dispatch.base import Observed
from server.lab.hosts import change_health
from server.lab.models import Attempt, AttemptState, JenkinsNode, Machine
from tests.jenkins.adapter.looking import AGENT, MACHINE, fresh, run_of, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, let_end, until

pytestmark = pytest.mark.django_db


def test_machine_takes_over_only_when_its_node_is_held(world: JenkinsWorld, rebooting: Attempt) -> None:
    started(world, rebooting)
    run = run_of(rebooting)
    place = {"agent": AGENT, "host": "here", "job": run.job, "node": MACHINE, "boot_id": "b"}
    assert not arrive(fresh(rebooting), number=run.number, **place)
    with pytest.raises(DomainError, match="arrived in build"):
        arrive(fresh(rebooting), number=99, **place)
    rounds.reconcile_attempts()
    assert world.port.look([]).hosts[MACHINE].connected, "our own mark says nothing about it"
    node = JenkinsNode.objects.get(name=MACHINE)
    assert (node.held_for, node.offline_reason) == (rebooting.key, f"Tidemark: {rebooting.key}")
    assert arrive(fresh(rebooting), number=run.number, **place)
    let_end(world, rebooting.key)
    until(lambda: seen(world, rebooting) is Observed.HANDED_OVER)
    with pytest.raises(DomainError, match="arrived in build"):
        attempts.claim_attempt(fresh(rebooting), "agent-two", job=run.job, number=99)
    attempts.claim_attempt(fresh(rebooting), AGENT)
    rounds.reconcile_attempts()
    assert fresh(rebooting).state == AttemptState.RUNNING


def test_node_is_let_go_of_when_its_machine_is_idle_again(world: JenkinsWorld, rebooting: Attempt) -> None:
    rounds.reconcile_attempts()
    world.port.hold({MACHINE: rebooting.key})
    Attempt.objects.update(state=AttemptState.DONE)
    Machine.objects.update(state=Machine.State.RETURNING)
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is not None
    Machine.objects.update(state=Machine.State.IDLE)
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is None
    assert JenkinsNode.objects.get(name=MACHINE).held_for == ""


def test_operators_mark_is_never_undone(world: JenkinsWorld, rebooting: Attempt) -> None:
    world.client.toggle_offline(MACHINE, "new disks")
    host = world.port.look([work_of(rebooting)]).hosts[MACHINE]
    assert (host.connected, host.detail) == (False, "new disks"), "nothing is given to it meanwhile"
    assert world.port.hold({MACHINE: rebooting.key}) == {MACHINE}
    assert world.port.hold({}) == frozenset()
    world.port.look([work_of(rebooting)])
    assert world.server.node(MACHINE).mark is not None
    assert JenkinsNode.objects.get(name=MACHINE).offline_reason == "new disks"


def test_quarantined_machine_is_held_until_it_is_good(world: JenkinsWorld, attempt: Attempt) -> None:
    Attempt.objects.update(state=AttemptState.DONE)
    machine = Machine.objects.get()
    change_health(machine, Machine.Health.QUARANTINED, "noisy")
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is not None
    change_health(machine, Machine.Health.GOOD, "checked")
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is None
