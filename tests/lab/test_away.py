"""Machines that reboot while they hold an attempt."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from pytest_django.fixtures import Settings

from server.core.errors import DomainError
from server.lab import rounds
from server.lab.attempts import life
from server.lab.attempts.arrivals import CaseOrder, assignment
from server.lab.models import Attempt, AttemptState, SessionState
from server.lab.port import Observed
from tests.builders import build_machine, build_series, build_session
from tests.lab.test_attempts import RememberingDispatcher

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AGENT = "agent-one"


@pytest.fixture
def attempt() -> Attempt:
    session = build_session(state=SessionState.RUNNING)
    return Attempt.objects.create(
        key="session-1-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.RUNNING, agent=AGENT
    )


def beat(attempt: Attempt, **fields: object) -> None:
    life.renew_lease(attempt=attempt, agent=AGENT, progress="", **fields)  # type: ignore[arg-type]  # (words and numbers)
    attempt.refresh_from_db()


def test_lease_holds_while_the_machine_may_be_away(attempt: Attempt, settings: Settings) -> None:
    with time_machine.travel(NOON, tick=False):
        beat(attempt, away_seconds=900)
        assert attempt.lease_until == NOON + timedelta(seconds=settings.LEASE_SECONDS + 900)
        beat(attempt)
        assert attempt.lease_until == NOON + timedelta(seconds=settings.LEASE_SECONDS)


def test_end_of_the_agents_log_is_kept(attempt: Attempt) -> None:
    beat(attempt, log="first\n")
    beat(attempt)
    beat(attempt, log="second\n")
    assert attempt.log == "first\nsecond\n"
    beat(attempt, log="x" * life.MAX_LOG_CHARACTERS)
    beat(attempt, log="last\n")
    assert len(attempt.log) == life.MAX_LOG_CHARACTERS
    assert attempt.log.endswith("xlast\n")


def test_log_of_an_agent_that_was_replaced_is_not_kept(attempt: Attempt) -> None:
    with pytest.raises(DomainError):
        life.renew_lease(attempt=attempt, agent="agent-two", progress="", log="lie")
    attempt.refresh_from_db()
    assert attempt.log == ""


@pytest.mark.parametrize(
    ("driver", "options", "seconds"),
    [
        ("qemu", {}, 180),
        ("kexec", {}, 1800),
        ("grub", {"boot_timeout_seconds": 600}, 600),
        ("qemu", {"boot_timeout_seconds": 7.5}, 7.5),
        ("kexec", {"boot_timeout_seconds": "soon"}, 1800),
        ("kexec", {"boot_timeout_seconds": True}, 1800),
        ("kexec", {"boot_timeout_seconds": -1}, 1800),
    ],
)
def test_boot_gets_the_time_that_its_machine_needs(driver: str, options: dict[str, object], seconds: float) -> None:
    machine = build_machine(boot_driver=driver, driver_options=options)
    session = build_session(build_series(), machine)
    attempt = Attempt.objects.create(
        key="session-9-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.QUEUED
    )
    assert assignment(attempt, [])["session"]["boot_timeout_seconds"] == seconds


@pytest.mark.parametrize(("driver", "seconds"), [("kexec", 1800 + 2 * (60 + 300)), ("qemu", 180)])
def test_boot_of_a_lab_machine_has_time_for_all_cases_on_each_core_type(driver: str, seconds: float) -> None:
    machine = build_machine(boot_driver=driver)
    machine.core_types.all().delete()
    for name in ("golden-cove", "gracemont"):
        machine.core_types.create(name=name, cpus="0")
    session = build_session(build_series(), machine)
    attempt = Attempt(key="session-9-1", number=1, session=session, adapter="local", slots=1)
    orders = [CaseOrder("b", "v", "short", 3, 1, 60, ("time",)), CaseOrder("b", "v", "long", 3, 1, 300, ("time",))]
    assert assignment(attempt, orders)["session"]["boot_timeout_seconds"] == seconds


def test_machine_that_reboots_keeps_its_attempt_as_long_as_its_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    session = build_session(build_series(), build_machine(boot_driver="kexec"), state=SessionState.RUNNING)
    attempt = Attempt.objects.create(
        key="session-1-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.RUNNING, agent=AGENT
    )
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    port.seen[attempt.key] = Observed.ABSENT
    with time_machine.travel(NOON, tick=False):
        beat(attempt, away_seconds=900)
        rounds.reconcile_attempts()
        attempt.refresh_from_db()
        assert attempt.state == AttemptState.RUNNING
    with time_machine.travel(NOON + timedelta(seconds=1000), tick=False):
        rounds.reconcile_attempts()
        attempt.refresh_from_db()
        assert attempt.state == AttemptState.LOST
