"""The service was down: agents worked on, nobody could be heard, and nothing is held against anybody."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from server.lab import rounds
from server.lab.attempts import life
from server.lab.models import Attempt, AttemptState, RoundMark
from server.lab.port import DispatchError, Observed
from tests.builders import build_machine, build_series, build_session
from tests.lab.test_attempts import RememberingDispatcher

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
AGENT = "agent-one"


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> RememberingDispatcher:
    port = RememberingDispatcher()
    monkeypatch.setattr(rounds, "dispatcher", lambda: port)
    return port


def round_at(moment: datetime) -> Attempt:
    with time_machine.travel(moment, tick=False):
        rounds.run_round()
    return Attempt.objects.get()


def claimed(port: RememberingDispatcher, seen: Observed) -> Attempt:
    """Claimed at noon, with one round then."""
    with time_machine.travel(NOON - timedelta(seconds=30), tick=False):
        build_session(build_series(), build_machine(boot_driver="kexec"))
    row = round_at(NOON - timedelta(seconds=30))
    with time_machine.travel(NOON, tick=False):
        life.claim_attempt(Attempt.objects.select_related("session__machine").get(), AGENT)
    port.seen[row.key] = seen
    return round_at(NOON)


@pytest.mark.parametrize("seen", [Observed.LEFT, Observed.ABSENT, Observed.ALIVE, Observed.HANDED_OVER])
@pytest.mark.parametrize("away", [timedelta(hours=1), timedelta(days=2)])
def test_outage_of_the_service_loses_nothing(port: RememberingDispatcher, seen: Observed, away: timedelta) -> None:
    deadline = claimed(port, seen).deadline_at
    assert deadline is not None
    row = round_at(NOON + away)
    assert (row.state, row.losing) == (AttemptState.RUNNING, False)
    assert row.deadline_at == deadline + away
    with time_machine.travel(NOON + away + timedelta(minutes=1), tick=False):
        assert life.renew_lease(attempt=row, agent=AGENT, progress="still there")


def test_who_stays_silent_after_the_outage_is_lost(port: RememberingDispatcher) -> None:
    claimed(port, Observed.LEFT)
    back = NOON + timedelta(hours=1)
    states = [round_at(back + timedelta(minutes=minute)).state for minute in range(6)]
    assert states == [AttemptState.RUNNING] * 5 + [AttemptState.LOST]


def test_controller_that_is_away_is_no_outage_of_the_service(
    port: RememberingDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = claimed(port, Observed.LEFT).lease_until

    def silent(_works: object) -> object:
        raise DispatchError("away", "no answer", permanent=False)

    with monkeypatch.context() as broken:
        broken.setattr(port, "look", silent)
        for minute in range(1, 6):
            assert round_at(NOON + timedelta(minutes=minute)).lease_until == until
    assert round_at(NOON + timedelta(minutes=6)).state == AttemptState.LOST


def test_round_that_takes_long_is_no_outage(port: RememberingDispatcher) -> None:
    claimed(port, Observed.LEFT)
    with time_machine.travel(NOON + timedelta(minutes=5), tick=False):
        rounds.end_round(port.name)
    assert round_at(NOON + timedelta(minutes=6)).state == AttemptState.LOST


def test_of_two_dispatchers_one_gives_the_time_back(port: RememberingDispatcher) -> None:
    deadline = claimed(port, Observed.ALIVE).deadline_at
    assert deadline is not None
    stale = RoundMark.objects.get()
    moment = NOON + timedelta(hours=1)
    with time_machine.travel(moment, tick=False):
        rounds.begin_round(port.name)
        rounds._give_back(stale, moment)
    assert Attempt.objects.get().deadline_at == deadline + timedelta(hours=1)
