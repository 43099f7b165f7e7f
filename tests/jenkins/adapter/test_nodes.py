"""Machines that boot themselves, and whose nodes are held meanwhile."""

from dataclasses import replace

import pytest

from server.core.errors import DomainError
from server.lab import rounds
from server.lab.attempts import life
from server.lab.attempts.arrivals import arrive
from server.lab.dispatch.jenkins import controller
from server.lab.dispatch.jenkins.answers import Executing, NodeFacts
from server.lab.dispatch.jenkins.models import JenkinsNode
from server.lab.dispatch.jenkins.values import Forbidden
from server.lab.hosts.state import change_health
from server.lab.models import Attempt, AttemptState, Machine
from server.lab.port import Observed, Origin
from tests.builders import build_machine
from tests.jenkins.adapter.looking import AGENT, MACHINE, fresh, run_of, script_of, seen, started, work_of
from tests.lab.worlds import JenkinsWorld, let_end, until

pytestmark = pytest.mark.django_db


def test_machine_takes_over_only_when_its_node_is_held(world: JenkinsWorld, rebooting: Attempt) -> None:
    started(world, rebooting)
    run = run_of(rebooting)
    ours = Origin(run.job, run.number, MACHINE, "b", script_of(rebooting))
    other = replace(ours, number=99)
    assert not arrive(fresh(rebooting), agent=AGENT, host="here", origin=ours)
    with pytest.raises(DomainError, match="arrived in build"):
        arrive(fresh(rebooting), agent=AGENT, host="here", origin=other)
    rounds.reconcile_attempts()
    assert world.port.look([]).hosts[MACHINE].connected, "our own mark says nothing about it"
    node = JenkinsNode.objects.get(name=MACHINE)
    assert (node.held_for, node.offline_reason) == (rebooting.key, f"Tidemark (tidemark-): {rebooting.key}")
    assert arrive(fresh(rebooting), agent=AGENT, host="here", origin=ours)
    let_end(world, rebooting.key)
    until(lambda: seen(world, rebooting) is Observed.HANDED_OVER)
    with pytest.raises(DomainError, match="arrived in build"):
        life.claim_attempt(fresh(rebooting), "agent-two", origin=other)
    life.claim_attempt(fresh(rebooting), AGENT)
    rounds.reconcile_attempts()
    assert fresh(rebooting).state == AttemptState.RUNNING


def test_node_is_busy_with_a_job_and_a_number_and_no_address(world: JenkinsWorld, rebooting: Attempt) -> None:
    started(world, rebooting)
    world.port.look([work_of(rebooting)])
    run = run_of(rebooting)
    assert JenkinsNode.objects.get(name=MACHINE).busy_with == f"{run.job} #{run.number}"


@pytest.mark.parametrize(
    ("url", "number", "title"),
    [
        ("https://ci.example.org/jenkins/job/session-zen3-01/12/", 12, "session-zen3-01 #12"),
        ("https://ci.example.org/job/lab/job/a%20b/7/", 7, "lab/a b #7"),
        ("https://ci.example.org/job/%1B%5B31m/7/", 7, "\ufffd[31m #7"),
        ("https://ci.example.org/job/nightly/", None, "nightly"),
        ("https://ci.example.org/", 3, "other work"),
    ],
)
def test_no_address_is_in_what_an_executor_works_on(url: str, number: int | None, title: str) -> None:
    assert Executing(url, number).title == title


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


@pytest.mark.parametrize("what", ["noted of nothing", "row gone"])
def test_our_mark_that_nothing_is_noted_of_is_taken_off(world: JenkinsWorld, rebooting: Attempt, what: str) -> None:
    """As after a database was put back to an older state, or a list of nodes once came without this one."""
    rounds.reconcile_attempts()
    world.port.hold({MACHINE: "session-7-2"})
    if what == "row gone":
        JenkinsNode.objects.all().delete()
    else:
        JenkinsNode.objects.update(held_for="")
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is None


def test_two_dispatchers_that_let_go_at_once_leave_the_node_online(world: JenkinsWorld, rebooting: Attempt) -> None:
    world.port.look([work_of(rebooting)])
    world.port.hold({MACHINE: rebooting.key})
    row, node = JenkinsNode.objects.get(name=MACHINE), nodes_seen(world)
    other = JenkinsNode.objects.get(name=MACHINE)
    controller._bring(world.client, row, node, "")
    controller._bring(world.client, other, node, "")
    assert world.server.node(MACHINE).mark is None
    # Were both to toggle all the same, the mark would be ours, and be taken off.
    world.client.toggle_offline(MACHINE, "Tidemark (tidemark-): released")
    rounds.reconcile_attempts()
    assert world.server.node(MACHINE).mark is None


def nodes_seen(world: JenkinsWorld) -> NodeFacts:
    return next(node for node in world.client.nodes() if node.name == MACHINE)


def test_node_that_cannot_be_marked_keeps_no_other_from_it(
    world: JenkinsWorld, rebooting: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [build_machine(f"vm-{number}").name for number in range(3)]
    world.define()
    world.port.look([work_of(rebooting)])
    toggle = world.client.toggle_offline

    def refused(node: str, message: str = "") -> None:
        if node == MACHINE:
            raise Forbidden("not this one", "Agent/Disconnect")
        toggle(node, message)

    monkeypatch.setattr(world.client, "toggle_offline", refused)
    monkeypatch.setattr(controller, "_SECONDS", 10)
    with pytest.raises(Forbidden):
        world.port.hold(dict.fromkeys([MACHINE, *others], "quarantine"))
    assert all(world.server.node(name).mark is not None for name in others)


def test_mark_of_another_service_is_never_undone(world: JenkinsWorld, rebooting: Attempt) -> None:
    world.client.toggle_offline(MACHINE, "Tidemark (second-): session-9-1")
    assert not world.port.look([work_of(rebooting)]).hosts[MACHINE].connected, "the other one has it"
    assert world.port.hold({}) == frozenset()
    assert world.server.node(MACHINE).mark is not None


def test_same_key_of_another_service_is_not_ours(world: JenkinsWorld, attempt: Attempt) -> None:
    world.server.add_job("tidemark-second-build-b1", label=MACHINE)
    started(world, attempt)
    let_end(world, attempt.key)
    until(lambda: seen(world, attempt) is Observed.ENDED)
    world.server.node(MACHINE).executors = 0
    world.client.trigger("tidemark-second-build-b1", attempt.key)
    assert seen(world, attempt) is Observed.ENDED
    assert world.port.cancel(work_of(attempt))
    assert world.server.waiting_keys() == [attempt.key], "the other one's waits on"
