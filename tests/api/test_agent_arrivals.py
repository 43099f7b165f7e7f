"""Arrivals, hellos and power cycles over HTTP, and which token may touch what."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from server.builds.models import BuildState
from server.core.models import ApiToken
from server.lab.dispatch.jenkins.jobs import wanted
from server.lab.dispatch.jenkins.models import JenkinsJob, JenkinsNode, JenkinsRun
from server.lab.models import Attempt, AttemptState, Builder, Fault, Machine, PowerCycle, PowerCycleState, SessionState
from tests.api.test_agent_api import AGENT, Agent
from tests.builders import EPOCH, build_build, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db
KEY = "session-1-1"
BODY: dict[str, Any] = {"agent": AGENT, "version": "0.1.0", "host": "box"}


@pytest.fixture(autouse=True)
def _controller(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"


@pytest.fixture
def attempt() -> Attempt:
    """At a session of a machine that boots itself; its build was started by hand, so that no script is asked for."""
    machine = build_machine("box", boot_driver="kexec")
    session = build_session(build_series(), machine, state=SessionState.DISPATCHED)
    row = Attempt.objects.create(
        key=KEY, number=1, session=session, machine=machine, adapter="jenkins", slots=1, state=AttemptState.QUEUED
    )
    JenkinsRun.objects.create(attempt=row, job="j", node="box")
    return row


def machine_agent(name: str = "box") -> Agent:
    return Agent(ApiToken.Scope.MACHINE, name)


def test_host_that_says_hello_without_end_wakes_the_dispatcher_once(
    sent_tasks: list[object], django_capture_on_commit_callbacks: object
) -> None:
    Builder.objects.create(name="busy")
    agent = Agent(ApiToken.Scope.BUILDER, "busy")
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]  # (a fixture of pytest-django)
        for _ in range(20):
            agent.post("hello", **BODY)
    assert sent_tasks.count(("lab.dispatch", ())) == 1


def test_arrival_waits_for_its_node_to_be_held_and_wakes_the_dispatcher(
    attempt: Attempt, sent_tasks: list[object], django_capture_on_commit_callbacks: object
) -> None:
    agent, place = machine_agent(), BODY | {"job": "j", "number": 5, "node": "box", "boot_id": "b"}
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]  # (a fixture of pytest-django)
        assert agent.post(f"attempts/{KEY}/arrive", **place) == {"ready": False}
    assert ("lab.dispatch", ()) in sent_tasks
    node = JenkinsNode.objects.create(name="box", temporarily_offline=True, held_for="session-0-1", seen_at=EPOCH)
    assert agent.post(f"attempts/{KEY}/arrive", **place) == {"ready": False}
    node.held_for = KEY
    node.save()
    assert agent.post(f"attempts/{KEY}/arrive", **place) == {"ready": True}
    row = JenkinsRun.objects.get()
    assert (row.number, row.node, row.boot_id) == (5, "box", "b")
    attempt.refresh_from_db()
    assert (attempt.arrived_at is not None, attempt.host, attempt.state) == (True, "box", "queued")


@pytest.mark.parametrize("act", ["arrive", "claim"])
def test_build_of_a_job_that_was_edited_is_refused_and_told(attempt: Attempt, act: str) -> None:
    job = "tidemark-session-box"
    JenkinsRun.objects.update(job=job)
    Attempt.objects.update(posts=1)
    place = BODY | {"job": job, "number": 5, "node": "box"}
    for script in ("", "0" * 64):
        answer = machine_agent().post(f"attempts/{KEY}/{act}", 403, **place, script=script)
        assert (answer["code"], job in answer["title"]) == ("job-edited", True)
    assert (Attempt.objects.get().fault, JenkinsJob.objects.get().trouble != "") == (Fault.JOB, True)
    machine_agent().post(f"attempts/{KEY}/{act}", **place, script=wanted().jobs[job].script)
    assert JenkinsJob.objects.get().trouble == ""


def test_second_build_of_a_key_that_arrived_is_refused(attempt: Attempt) -> None:
    agent = machine_agent()
    agent.post(f"attempts/{KEY}/arrive", **BODY, job="j", number=5, node="box")
    for path in ("arrive", "claim"):
        problem = agent.post(f"attempts/{KEY}/{path}", 409, **BODY, job="j", number=6, node="box")
        assert problem["code"] == "superseded"
    agent.claim(KEY)
    agent.post(f"attempts/{KEY}/arrive", 409, **BODY, job="j", number=5, node="box")


def test_arrival_without_a_controller_is_ready_at_once(attempt: Attempt) -> None:
    JenkinsRun.objects.all().delete()
    assert machine_agent().post(f"attempts/{KEY}/arrive", **BODY) == {"ready": True}


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": -1},
        {"number": "many"},
        {"number": 2**31},
        {"job": "j" * 101},
        {"node": "n" * 61},
        {"boot_id": "b" * 37},
    ],
)
def test_places_that_cannot_be_are_refused(attempt: Attempt, wrong: dict[str, object]) -> None:
    for path in ("arrive", "claim"):
        machine_agent().post(f"attempts/{KEY}/{path}", 400, **{**BODY, "job": "j", "number": 5, **wrong})


def test_attempt_that_is_being_stopped_is_told_so_and_keeps_its_lease(attempt: Attempt) -> None:
    agent = machine_agent()
    agent.claim(KEY)
    attempt.refresh_from_db()
    lease = attempt.lease_until
    Attempt.objects.update(state=AttemptState.CANCELING, losing=True)
    assert agent.post(f"attempts/{KEY}/heartbeat", agent=AGENT, progress="boot 2") == {"continue": False}
    assert agent.post(f"attempts/{KEY}/boots/0/start", 409, agent=AGENT)["code"] == "superseded"
    attempt.refresh_from_db()
    assert (attempt.lease_until, attempt.progress) == (lease, "boot 2")
    agent.post(f"attempts/{KEY}/end", agent=AGENT, outcome="failed", reason="told to stop")
    attempt.refresh_from_db()
    assert attempt.state == AttemptState.LOST
    assert attempt.session is not None
    assert attempt.session.state == SessionState.PLANNED


def test_hello_of_a_machine_that_is_back_makes_it_idle(attempt: Attempt) -> None:
    Attempt.objects.update(state=AttemptState.DONE)
    Machine.objects.update(state=Machine.State.RETURNING)
    agent, body = machine_agent(), BODY | {"boot_id": "b-2", "key": "", "build_id": ""}
    agent.post("hello", **body, safe=False)
    assert Machine.objects.get().state == Machine.State.RETURNING
    assert agent.post("hello", **body, safe=True) == {"renew": False}
    machine = Machine.objects.get()
    assert (machine.state, machine.boot_id, machine.safe) == (Machine.State.IDLE, "b-2", True)


def test_hello_needs_a_host_of_the_lab() -> None:
    Agent(ApiToken.Scope.BUILDER, "nobody", known=False).post("hello", 401, **BODY)
    assert Agent(ApiToken.Scope.CONTROL, "lab-control").post("hello", **BODY) == {"renew": False}


def test_builder_touches_its_own_builds_alone() -> None:
    build = build_build(state=BuildState.DISPATCHED)
    forge = Builder.objects.create(name="forge")
    Builder.objects.create(name="smithy")
    Attempt.objects.create(
        key="build-1-1", number=1, build=build, builder=forge, adapter="jenkins", slots=1, state=AttemptState.QUEUED
    )
    Agent(ApiToken.Scope.BUILDER, "smithy").claim("build-1-1", 404)
    Agent(ApiToken.Scope.MACHINE, "forge").claim("build-1-1", 404)
    Agent(ApiToken.Scope.CONTROL, "forge").claim("build-1-1", 401)
    Agent(ApiToken.Scope.CONTROL, "lab-control").claim("build-1-1", 404)
    assert Agent(ApiToken.Scope.BUILDER, "forge").claim("build-1-1")["kind"] == "build"


def power_cycle(settings: Settings) -> PowerCycle:
    settings.LAB_CONTROL = "lab-control"
    cycle = PowerCycle.objects.create(machine=build_machine("box"), state=PowerCycleState.DISPATCHED, reason="gone")
    Attempt.objects.create(
        key="power-cycle-1-1", number=1, power_cycle=cycle, adapter="jenkins", slots=1, state=AttemptState.QUEUED
    )
    return cycle


@pytest.mark.parametrize(
    ("outcome", "state", "health"), [("done", "done", "good"), ("failed", "failed", "quarantined")]
)
def test_power_cycle_is_claimed_by_the_control_host_and_ends(
    settings: Settings, outcome: str, state: str, health: str
) -> None:
    cycle = power_cycle(settings)
    Agent(ApiToken.Scope.MACHINE, "box").claim("power-cycle-1-1", 404)
    control = Agent(ApiToken.Scope.CONTROL, "lab-control")
    order = control.claim("power-cycle-1-1")
    assert (order["kind"], order["power_cycle"]["machine"]) == ("power-cycle", "box")
    assert control.post("attempts/power-cycle-1-1/heartbeat", agent=AGENT, progress="") == {"continue": True}
    control.post("attempts/power-cycle-1-1/end", agent=AGENT, outcome=outcome, reason="switch said so")
    cycle.refresh_from_db()
    assert (cycle.state, cycle.reason) == (state, "switch said so")
    assert Machine.objects.get().health == health
    assert Attempt.objects.get().state == AttemptState.DONE
