"""What the lab's sweep asks of the database does not follow how many machines there are."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from server.core import clock
from server.lab.hosts.state import Health
from server.lab.hosts.trouble import judge_machine
from server.lab.models import Attempt, Machine, Session
from tests.builders import build_attempt, build_builder, build_machine, build_power_cycle, build_series, build_session
from workers.lab import sweep

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def controller(settings: Settings) -> None:
    settings.DISPATCHER = "jenkins"


def fleet(first: int, last: int) -> None:
    """Of each number an idle machine, one at work, one that is switched off and on, one that a person quarantined."""
    series = build_series()
    for number in range(first, last):
        build_builder(f"builder-{number}")
        idle = build_machine(f"idle-{number}")
        done = build_session(series, idle, state=Session.State.DONE)
        build_attempt(done, state=Attempt.State.DONE, adapter="jenkins")
        busy = build_machine(f"busy-{number}", state=Machine.State.WORKING)
        build_attempt(build_session(series, busy, state=Session.State.RUNNING), adapter="jenkins")
        build_power_cycle(build_machine(f"off-{number}", state=Machine.State.POWER_CYCLING))
        build_machine(
            f"held-{number}",
            health=Health.QUARANTINED,
            health_since=clock.now() - timedelta(hours=2),
            last_seen_at=clock.now() - timedelta(hours=3),
        )


def queries_of_sweep() -> int:
    sweep()
    with CaptureQueriesContext(connection) as captured:
        sweep()
    return len(captured)


def test_sweep_asks_the_same_of_three_machines_of_each_kind_and_of_thirty() -> None:
    fleet(0, 3)
    before = queries_of_sweep()
    fleet(3, 30)
    assert queries_of_sweep() == before


def test_a_machine_is_judged_by_its_latest_attempts_alone() -> None:
    machine, other = build_machine("sick"), build_machine("well")
    Machine.objects.update(health_since=clock.now() - timedelta(days=9))
    build_attempt(build_session(build_series(), other, state=Session.State.DONE), state=Attempt.State.DONE)
    for _ in range(3):
        build_attempt(build_session(build_series(), machine), state=Attempt.State.LOST)
    build_attempt(build_session(build_series(), machine, state=Session.State.DONE), state=Attempt.State.DONE)
    assert not judge_machine(machine)
    for _ in range(3):
        build_attempt(build_session(build_series(), machine), state=Attempt.State.LOST)
    Attempt.objects.filter(machine=other).update(state_since=clock.now())
    assert judge_machine(machine)
    assert machine.health == Health.QUARANTINED
