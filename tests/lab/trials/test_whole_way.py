"""A session through dispatch and agent: measured, given more boots while its agent still ends, measured again."""

import uuid

import pytest

from server.lab import rounds
from server.lab.attempts import ends, life
from server.lab.attempts.boots import BootReport, start_boot
from server.lab.models import Attempt, Boot, BootState, Session, SessionState, TrialState
from server.lab.trials.life import more_boots
from server.results.measurements import Values, record_boot
from server.results.models import Measurement
from tests.builders import because, build_case, build_metric, build_trial, build_trial_session
from tests.lab.test_attempts import RememberingDispatcher
from tests.lab.trials.conftest import Sent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "dispatcher", RememberingDispatcher)
    build_case()
    build_metric()


def claim(agent: str) -> Attempt:
    rounds.place_work()
    attempt = Attempt.objects.select_related("build", "session__machine", "session__series").latest("id")
    life.claim_attempt(attempt, agent)
    return attempt


def measure(attempt: Attempt, position: int) -> bool:
    """Boot and upload; returns whether the agent is to go on."""
    assert start_boot(attempt=attempt, agent=attempt.agent, position=position)
    return upload(attempt, position)[1]


def upload(attempt: Attempt, position: int) -> tuple[bool, bool]:
    boot = Boot.objects.select_related("session__base_build", "session__patched_build").get(
        session=attempt.session_id, position=position
    )
    build = boot.session.base_build if boot.arm == "base" else boot.session.patched_build
    values = Values("mm-basic", "1", "fault-4k", "time", "all", (9.0, 1.5, 1.25), 1)
    report = BootReport("measured", boot_id=str(uuid.uuid4()), build_id=build.build_id)
    return record_boot(attempt=attempt, position=position, report=report, measured=[values])


def test_session_goes_on_after_a_look_with_a_new_attempt(wakes: Sent) -> None:
    session = build_trial_session(build_trial(state=TrialState.MEASURING, looks=[2, 3]))
    look = ("detection.look", (session.trial_id or 0,))
    first = claim("one")
    assert [measure(first, position) for position in range(4)] == [True, True, True, False]
    assert wakes[-1] == look
    # The look is faster than the agent's way back to its base system.
    assert more_boots(Session.objects.get(), base=1, patched=1, reason=because("1 cell is open"))
    rounds.place_work()
    assert Attempt.objects.count() == 1, "its machine is not free yet"
    assert upload(first, 0) == (False, False), "a result that comes again changes nothing"
    assert not life.is_wanted(first), "its agent is to end: the boots are for the next"
    ends.end_attempt(attempt=first, agent="one", outcome="done", reason="")
    session.refresh_from_db()
    assert session.state == SessionState.PLANNED

    second = claim("two")
    assert second.number == 2
    assert [measure(second, position) for position in (4, 5)] == [True, False]
    session.refresh_from_db()
    assert session.state == SessionState.DONE
    assert wakes.count(look) == 2
    assert Measurement.objects.count() == 6
    ends.end_attempt(attempt=second, agent="two", outcome="done", reason="")
    assert set(session.boots.values_list("state", flat=True)) == {BootState.MEASURED}


def test_lost_agent_of_the_second_visit_puts_the_session_back(wakes: Sent) -> None:
    session = build_trial_session(build_trial(state=TrialState.MEASURING, looks=[2, 3]), state=SessionState.DONE)
    more_boots(session, base=1, patched=1, reason=because("1 cell is open"))
    attempt = claim("one")
    measure(attempt, 4)
    start_boot(attempt=attempt, agent="one", position=5)
    ends.lose_attempt(attempt, because("silent for 60 s"))
    session.refresh_from_db()
    assert (session.state, session.cut_short) == (SessionState.PLANNED, False)
    assert session.boots.get(position=5).state == BootState.PLANNED
    again = claim("two")
    measure(again, 5)
    session.refresh_from_db()
    assert session.state == SessionState.DONE
    assert upload(attempt, 5) == (False, False), "what the lost one had spooled comes late"
    assert wakes[-1] == ("detection.look", (session.trial_id,))
