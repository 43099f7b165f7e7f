"""What an agent says that was told to end: its work waits again, and nothing is held against a kernel or a host."""

import pytest
from pytest_django.fixtures import Settings

from server.builds.blame import Blame, blame
from server.builds.models import Build, BuildState
from server.lab.attempts.boots import BootReport
from server.lab.attempts.ends import (
    MAX_FRUITLESS_ATTEMPTS,
    cancel_attempt,
    end_attempt,
    finish_canceled,
    fruitless_attempts,
)
from server.lab.hosts.trouble import want_power_cycle
from server.lab.models import Attempt, AttemptState, BootState, PowerCycleState, Session, SessionState
from server.lab.work import local_builder
from server.results.measurements import record_boot
from tests.api.test_agent_api import builder
from tests.builders import because, build_attempt, build_build, build_machine, build_session
from tests.results.test_record_boot import report, running_session, values

pytestmark = pytest.mark.django_db
TERMINATED = "make: *** [Makefile:7: bzImage] Terminated"
AGENT = "agent-one"


def running_build() -> tuple[Build, Attempt]:
    build = build_build(state=BuildState.RUNNING)
    return build, build_attempt(build, agent=AGENT, builder=local_builder())


def report_failure(attempt: Attempt, reason: str = TERMINATED, agent: str = AGENT) -> bool:
    """Whether the service took it."""
    answer = builder().post(
        f"attempts/{attempt.key}/build",
        agent=agent, outcome="failed", reason=reason, first_error=reason, seconds=3,
    )  # fmt: skip
    return bool(answer["stored"])


def stop(attempt: Attempt, how: str) -> None:
    """Bring a running attempt to where it is when the failure comes."""
    if how == "ended as stopped":
        end_attempt(attempt=attempt, agent=AGENT, outcome="stopped", reason="stopped by a controller or an operator")
        return
    cancel_attempt(attempt, because("a newer version of the series arrived"), losing=how == "lost")
    if how != "canceling":
        finish_canceled(attempt, because("its build was stopped"))
    attempt.refresh_from_db()


@pytest.mark.parametrize("how", ["canceling", "canceled", "lost", "ended as stopped"])
@pytest.mark.parametrize("agent", [AGENT, "the next agent of the builder"])
def test_failure_of_a_stopped_attempt_is_no_verdict_on_the_kernel(how: str, agent: str) -> None:
    build, attempt = running_build()
    stop(attempt, how)
    assert not report_failure(attempt, agent=agent)
    build.refresh_from_db()
    attempt.refresh_from_db()
    assert build.state == (BuildState.RUNNING if how == "canceling" and agent != AGENT else BuildState.WANTED)
    assert build.first_error == ""
    assert TERMINATED in attempt.log, "it is kept for the record"
    patched = build_build(state=BuildState.BUILT)
    assert blame(build, patched).blame is Blame.NONE


def test_failure_that_waited_for_the_service_is_a_verdict_all_the_same() -> None:
    build, attempt = running_build()
    end_attempt(attempt=attempt, agent=AGENT, outcome="failed", reason="results wait in the spool")
    assert report_failure(attempt, "mm/memory.c:7: error: expected expression", "the next one")
    build.refresh_from_db()
    assert build.state == BuildState.FAILED


def test_stopped_agent_leaves_its_work_to_another_one() -> None:
    build, attempt = running_build()
    end_attempt(attempt=attempt, agent=AGENT, outcome="stopped", reason="stopped by a controller or an operator")
    build.refresh_from_db()
    assert (build.state, attempt.state) == (BuildState.WANTED, AttemptState.CANCELED)
    assert "stopped by a controller" in attempt.reason


@pytest.mark.parametrize("kind", ["build", "session", "check of a machine"])
def test_work_is_never_given_up_for_stops_however_often_somebody_stops_it(kind: str) -> None:
    work: Build | Session = build_build(state=BuildState.WANTED)
    if kind != "build":
        work = build_session(machine=build_machine(boot_driver="qemu"))
    if kind == "check of a machine":
        Session.objects.update(purpose=Session.Purpose.HEALTH, series=None, trial=None)
    for _ in range(MAX_FRUITLESS_ATTEMPTS + 1):
        type(work)._default_manager.filter(pk=work.pk).update(state="running")
        attempt = build_attempt(work, agent=AGENT)
        end_attempt(attempt=attempt, agent=AGENT, outcome="stopped", reason="stopped by a controller or an operator")
        work.refresh_from_db()
        assert work.state == ("wanted" if kind == "build" else "planned")
    assert fruitless_attempts(work) == 0


def test_agent_that_stops_without_end_is_counted_at_last() -> None:
    session = build_session(machine=build_machine(boot_driver="qemu"))
    stopped = [build_attempt(session, agent=AGENT, state=AttemptState.CANCELED) for _ in range(53)]
    assert fruitless_attempts(session) == len(stopped) - 50


@pytest.mark.parametrize("outcome", ["panic", "no-boot", "timeout", "wrong-kernel"])
@pytest.mark.parametrize("how", ["canceling", "canceled", "lost", "ended as stopped"])
def test_failed_boot_of_a_stopped_attempt_says_nothing_against_kernel_or_machine(how: str, outcome: str) -> None:
    session = build_session(machine=build_machine(boot_driver="qemu"), state=SessionState.RUNNING)
    attempt = build_attempt(session, agent=AGENT)
    session.boots.filter(position=0).update(state=BootState.RUNNING, started_by=attempt.key)
    stop(attempt, how)
    said = BootReport(outcome=outcome, reason="the machine was reset before the last case was over")
    assert record_boot(attempt=attempt, position=0, report=said, measured=[]) == (False, False)
    boot = session.boots.get(position=0)
    assert boot.outcome == ""
    assert said.reason in Attempt.objects.get().log
    end_attempt(attempt=attempt, agent=AGENT, outcome="stopped", reason="stopped by a controller or an operator")
    session.machine.refresh_from_db()
    assert session.machine.health == "good"
    assert not session.boots.filter(state=BootState.RUNNING).exists()


def test_panic_of_a_machine_that_boots_itself_stands_whatever_became_of_its_attempt() -> None:
    session = build_session(machine=build_machine(boot_driver="kexec"), state=SessionState.RUNNING)
    attempt = build_attempt(session, agent=AGENT)
    stop(attempt, "lost")
    said = BootReport(outcome="panic", reason="not syncing: oops")
    assert record_boot(attempt=attempt, position=0, report=said, measured=[])[0]
    assert session.boots.get(position=0).reason == "panic: not syncing: oops"


def test_boot_that_was_measured_counts_although_its_attempt_was_stopped() -> None:
    session, attempt = running_session()
    stop(attempt, "lost")
    measured = [values(9.0, 1.5, 1.25)]
    assert record_boot(attempt=attempt, position=0, report=report(session, 0), measured=measured)[0]


def test_power_cycle_whose_agent_was_stopped_is_begun_again_and_the_machine_stays_good(settings: Settings) -> None:
    settings.DISPATCHER, settings.LAB_CONTROL = "jenkins", "lab-control"
    machine = build_machine(boot_driver="kexec")
    cycle = want_power_cycle(machine, because("hangs"))
    for _ in range(4):
        type(cycle).objects.filter(pk=cycle.pk).update(state=PowerCycleState.RUNNING)
        attempt = build_attempt(cycle, agent=AGENT)
        end_attempt(attempt=attempt, agent=AGENT, outcome="stopped", reason="stopped by a controller or an operator")
        cycle.refresh_from_db()
        machine.refresh_from_db()
        assert (cycle.state, machine.health) == (PowerCycleState.WANTED, "good")
