"""Machines that do not come back, hosts that fail what others do, and sessions that are stranded."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.core.reasons import Because
from server.lab.hosts.trouble import after_lost
from server.lab.models import Attempt, AttemptState, Boot, BootStart, Builder, Machine, PowerCycle, Session
from server.lab.sweep import BACK_AFTER_POWER_CYCLE, POWER_CYCLE_WITHIN, RETURN_WITHIN, rescue_stranded, sweep
from tests.builders import because, build_build, build_machine, build_series, build_session
from tests.lab.test_hosts import an_attempt, state_of

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _controller(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"


def start_of(boot: Boot, attempt: Attempt) -> BootStart:
    boot.advance("running", because(f"started by {attempt.key}"), started_by=attempt.key)
    return BootStart.objects.create(boot=boot, attempt=attempt)


def lose(session: Session, *, arm: str = "") -> Attempt:
    """An attempt at the session that was claimed and lost, in a boot of `arm` if told."""
    attempt = an_attempt(session, AttemptState.RUNNING, agent="a")
    if arm:
        boot = session.boots.filter(arm=arm, started_by="").first()
        assert boot is not None
        assert start_of(boot, attempt)
    attempt.advance(AttemptState.LOST, because("lease over"))
    after_lost(attempt, "lease over")
    return attempt


# --- machines that are gone -----------------------------------------------------------


def test_machine_that_is_lost_while_it_boots_itself_is_switched_off_and_on() -> None:
    machine = build_machine(boot_driver="kexec", state="working")
    lose(build_session(machine=machine))
    cycle = PowerCycle.objects.get()
    assert (cycle.machine, cycle.state) == (machine, "wanted")
    assert "lease over" in cycle.reason
    assert state_of(machine) == "power-cycling"


def test_machine_whose_agent_just_spoke_has_its_time_to_return() -> None:
    machine = build_machine(boot_driver="kexec", state="working")
    until = datetime.now(UTC) + timedelta(minutes=1)
    attempt = an_attempt(build_session(machine=machine), AttemptState.RUNNING, agent="a", lease_until=until)
    attempt.advance(AttemptState.LOST, because("its agent gave up"))
    after_lost(attempt, "its agent gave up")
    assert (PowerCycle.objects.count(), state_of(machine)) == (0, "returning")


def test_where_nobody_can_switch_it_the_machine_is_quarantined_with_both_reasons(settings: Settings) -> None:
    settings.LAB_CONTROL = ""
    machine = build_machine(boot_driver="kexec", state="working")
    lose(build_session(machine=machine))
    assert (state_of(machine), machine.health) == ("offline", "quarantined")
    assert "lease over" in machine.health_reason
    assert "no control host is configured" in machine.health_reason


def test_machine_of_which_the_job_never_ran_is_left_alone() -> None:
    machine = build_machine(boot_driver="kexec", state="reserved")
    attempt = an_attempt(build_session(machine=machine))
    attempt.advance(AttemptState.LOST, because("not in the queue"))
    after_lost(attempt, "not in the queue")
    assert (state_of(machine), machine.health, PowerCycle.objects.count()) == ("idle", "good", 0)


def test_machine_that_returns_too_long_is_switched_off_and_on() -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        machine = build_machine(boot_driver="kexec", state="returning", state_reason="session-7-1 is over")
        sweep()
        assert not PowerCycle.objects.exists()
        traveller.shift(RETURN_WITHIN + timedelta(seconds=1))
        sweep()
        sweep()
    assert PowerCycle.objects.get().reason == "not back 20 minutes after session-7-1 is over"
    assert state_of(machine) == "power-cycling"


def test_machine_in_somebodys_hands_is_never_switched() -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        machine = build_machine(boot_driver="kexec", state="returning", health="maintenance")
        traveller.shift(RETURN_WITHIN + timedelta(seconds=1))
        sweep()
        lose(build_session(machine=build_machine("m2", boot_driver="kexec", state="working", health="maintenance")))
    assert not PowerCycle.objects.exists()
    assert (state_of(machine), machine.health) == ("offline", "maintenance")


def test_machine_that_is_not_back_after_its_power_cycle_is_quarantined() -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        machine = build_machine(boot_driver="kexec", state="power-cycling")
        PowerCycle.objects.create(machine=machine, state="running").advance("done")
        sweep()
        assert state_of(machine) == "power-cycling"
        traveller.shift(BACK_AFTER_POWER_CYCLE + timedelta(seconds=1))
        sweep()
    assert (state_of(machine), machine.health) == ("offline", "quarantined")
    assert machine.health_reason == "not back 15 minutes after it was switched off and on"


def test_power_cycle_that_nobody_does_is_given_up() -> None:
    with time_machine.travel(NOON, tick=False) as traveller:
        machine = build_machine(boot_driver="kexec", state="power-cycling")
        PowerCycle.objects.create(machine=machine, state="wanted", reason="lost")
        traveller.shift(POWER_CYCLE_WITHIN + timedelta(seconds=1))
        sweep()
    assert PowerCycle.objects.get().state == "failed"
    assert (state_of(machine), machine.health) == ("offline", "quarantined")


# --- repeated trouble -----------------------------------------------------------------


def another_works(minutes: int = 1) -> None:
    attempt = an_attempt(build_session(machine=build_machine("other", boot_driver="qemu")), AttemptState.RUNNING)
    attempt.advance(AttemptState.DONE, because("done"))


def lost_three_times(machine: Machine, *, arm: str = "base", sessions: int = 3) -> None:
    known = [build_session(build_series(), machine) for _ in range(sessions)]
    for number in range(3):
        lose(known[number % sessions], arm=arm)


def test_machine_that_loses_all_while_others_work_is_quarantined_with_the_reasons() -> None:
    machine = build_machine(boot_driver="qemu", health_since=NOON)
    known = [build_session(build_series(), machine) for _ in range(3)]
    lose(known[0], arm="base")
    another_works()
    lose(known[1])
    machine.refresh_from_db()
    assert machine.health == "good"
    lose(known[2])
    machine.refresh_from_db()
    assert machine.health == "quarantined"
    assert machine.health_reason.count("lease over") == 3


def test_trouble_of_all_machines_is_no_trouble_of_one() -> None:
    machine = build_machine(boot_driver="qemu", health_since=NOON)
    lost_three_times(machine)
    sweep()
    machine.refresh_from_db()
    assert machine.health == "good"


@pytest.mark.parametrize(("arm", "sessions"), [("patched", 3), ("", 1)])
def test_patch_cannot_quarantine_a_machine(arm: str, sessions: int) -> None:
    """Neither by hanging it when its own kernel runs, nor by one session alone."""
    machine = build_machine(boot_driver="qemu", health_since=NOON)
    lost_three_times(machine, arm=arm, sessions=sessions)
    another_works()
    sweep()
    machine.refresh_from_db()
    assert machine.health == "good"


def test_patch_that_hangs_its_boot_again_and_again_cannot_quarantine_a_machine() -> None:
    """The boot names the latest attempt that began it; the ones before were lost in it as well."""
    machine = build_machine(boot_driver="qemu", health_since=NOON)
    for _ in range(2):
        session = build_session(build_series(), machine)
        boot = session.boots.get(position=1)
        for _ in range(3):
            attempt = an_attempt(session, AttemptState.RUNNING, agent="a")
            assert start_of(boot, attempt)
            attempt.advance(AttemptState.LOST, because("lease over"))
            boot.advance("planned", because("lost"))
    another_works()
    sweep()
    machine.refresh_from_db()
    assert machine.health == "good"


@pytest.mark.parametrize(("arm", "health"), [("patched", "good"), ("base", "quarantined")])
def test_trouble_that_agents_report_below_a_patch_is_not_the_machines(arm: str, health: str) -> None:
    machine = build_machine(boot_driver="qemu", health_since=NOON)
    for _ in range(3):
        session = build_session(build_series(), machine)
        attempt = an_attempt(session, AttemptState.RUNNING, agent="a")
        boot = session.boots.filter(arm=arm).first()
        assert boot is not None
        assert start_of(boot, attempt)
        attempt.advance(AttemptState.DONE, Because.INFRASTRUCTURE("infrastructure: the service was not reached"))
    another_works()
    sweep()
    machine.refresh_from_db()
    assert machine.health == health


def builds_fail(builder: Builder, *, patched: bool = False) -> None:
    for number in range(3):
        revision = build_series().head if patched else None
        attempt = Attempt.objects.create(
            key=f"build-{builder.pk}-{number}", number=1, build=build_build(revision, state="wanted"), builder=builder,
            adapter="jenkins", slots=1, state=AttemptState.RUNNING, agent="a",
        )  # fmt: skip
        attempt.advance(AttemptState.DONE, Because.INFRASTRUCTURE("infrastructure: no space left on device"))


def test_builder_that_fails_what_others_build_is_quarantined() -> None:
    sick, fine = Builder.objects.create(name="sick", health_since=NOON), Builder.objects.create(name="fine")
    builds_fail(sick)
    sweep()
    sick.refresh_from_db()
    assert sick.health == "good", "nobody else built anything: it may be the network"
    done = Attempt.objects.create(
        key="build-of-another", number=1, build=build_build(), builder=fine, adapter="jenkins", slots=1, state="running"
    )
    done.advance(AttemptState.DONE, because("built"))
    sweep()
    sick.refresh_from_db()
    assert sick.health == "quarantined"
    assert "no space left on device" in sick.health_reason


def test_series_cannot_quarantine_a_builder() -> None:
    sick, fine = Builder.objects.create(name="sick", health_since=NOON), Builder.objects.create(name="fine")
    builds_fail(sick, patched=True)
    done = Attempt.objects.create(
        key="build-of-another", number=1, build=build_build(), builder=fine, adapter="jenkins", slots=1, state="running"
    )
    done.advance(AttemptState.DONE, because("built"))
    sweep()
    sick.refresh_from_db()
    assert sick.health == "good"


# --- stranded sessions ------------------------------------------------------------------


def test_stranded_session_moves_to_a_sister_without_one_of_its_series() -> None:
    sick = build_machine("a-sick", health="quarantined", health_reason="smoke")
    build_machine("b-other-kind", "zen3")
    sister = build_machine("c-sister")
    session = build_session(machine=sick)
    assert rescue_stranded() == (1, 0)
    session.refresh_from_db()
    assert (session.machine, session.state) == (sister, "planned")
    assert session.reason == "moved from a-sick to c-sister: machine a-sick is quarantined: smoke"


def test_stranded_session_without_a_sister_fails_with_the_reason() -> None:
    sick = build_machine("sick", health="quarantined", health_reason="smoke")
    busy_sister = build_machine("sister")
    series = build_series()
    session = build_session(series, sick)
    build_session(series, busy_sister)
    assert rescue_stranded() == (0, 1)
    session.refresh_from_db()
    assert (session.state, session.reason) == ("failed", "machine sick is quarantined: smoke")


def test_session_that_measured_something_does_not_move() -> None:
    session = build_session(machine=build_machine("sick", enabled=False))
    build_machine("sister")
    first = session.boots.first()
    assert first is not None
    first.advance("failed", because("panic"))
    assert rescue_stranded() == (0, 1)
    session.refresh_from_db()
    assert session.reason == "machine sick is disabled"


def test_need_that_its_machine_lacks_moves_a_session_or_fails_it_by_name() -> None:
    plain = build_machine("plain")
    session, other = build_session(machine=plain, needs=["cxl"]), build_session(build_series(), plain, needs=["numa"])
    able = build_machine("able", capabilities=["cxl"])
    assert rescue_stranded() == (1, 1)
    session.refresh_from_db()
    other.refresh_from_db()
    assert session.machine == able
    assert (other.state, other.reason) == ("failed", "machine plain has no numa")


def test_machine_that_is_to_be_checked_keeps_its_sessions() -> None:
    build_session(machine=build_machine(health="unknown"))
    assert rescue_stranded() == (0, 0)
