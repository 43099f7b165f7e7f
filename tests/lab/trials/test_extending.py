"""Sessions that are done get more boots, or are concluded."""

import pytest

from server.core.models import Transition
from server.lab.attempts.boots import finish_session
from server.lab.attempts.ends import end_session
from server.lab.models import Attempt, Boot, BootState, Machine, Session, SessionState, Trial, TrialState
from server.lab.scheduling.reader import read_snapshot
from server.lab.trials.life import conclude, more_boots
from tests.builders import because, build_attempt, build_boot, build_trial, build_trial_session
from tests.lab.trials.conftest import Sent

pytestmark = pytest.mark.django_db


@pytest.fixture
def done() -> Session:
    trial = build_trial(state=TrialState.MEASURING, looks=[2, 4, 8])
    return build_trial_session(trial, state=SessionState.DONE)


def extend(session: Session, base: int = 2, patched: int = 2) -> bool:
    return more_boots(session, base=base, patched=patched, reason=because("2 cells are open"))


def end_boots(session: Session, state: str, *, arm: str = "", last: int = 100) -> None:
    boots = session.boots.filter(state=BootState.PLANNED).order_by("position")
    for boot in [boot for boot in boots if arm in {"", boot.arm}][:last]:
        proof = {"boot_id": f"{session.pk}-{boot.position}", "build_id": "ab"} if state == BootState.MEASURED else {}
        boot.advance(state, because("panic: no"), **proof)


def arms(session: Session) -> str:
    return "".join(arm[0] for arm in session.boots.order_by("position").values_list("arm", flat=True))


def test_done_session_waits_again_with_boots_that_go_on(done: Session, wakes: Sent) -> None:
    assert extend(done)
    assert (done.state, done.reason, arms(done)) == (SessionState.PLANNED, "2 cells are open", "bppbbppb")
    assert list(done.boots.filter(state=BootState.PLANNED).values_list("position", flat=True)) == [4, 5, 6, 7]
    assert ("lab.dispatch", ()) in wakes
    assert [one.id for one in read_snapshot().sessions] == [done.pk]
    assert not extend(done), "it waits already"
    end_boots(done, BootState.MEASURED)
    finish_session(session=done)
    assert done.state == SessionState.DONE
    history = Transition.objects.filter(subject="session", subject_id=done.pk).order_by("id")
    assert list(history.values_list("after", flat=True)) == ["done", "planned", "done"]


@pytest.mark.parametrize(
    "broken",
    [
        lambda one: conclude(one, cut_short=False),
        lambda _: Machine.objects.update(health=Machine.Health.QUARANTINED),
        lambda _: Machine.objects.update(enabled=False),
        lambda _: Trial.objects.update(state=TrialState.CANCELED),
        lambda _: Session.objects.update(looks=[]),
        lambda one: [build_boot(one, position, Boot.Arm.PATCHED) for position in range(4, 17)],
    ],
    ids=["concluded", "quarantined", "disabled", "canceled", "fixed", "boots used up"],
)
def test_no_more_boots_where_that_cannot_be(done: Session, broken: object) -> None:
    assert callable(broken)
    broken(done)
    before = done.boots.count()
    assert not extend(done)
    assert (Session.objects.get().state, done.boots.count()) == (SessionState.DONE, before)


def test_session_is_concluded_once_and_says_whether_it_was_cut_short(done: Session) -> None:
    assert conclude(done, cut_short=True, reason=because("24 hours of machine time are spent"))
    assert done.concluded_at is not None
    assert (done.cut_short, done.reason) == (True, "24 hours of machine time are spent")
    assert not conclude(done, cut_short=False)
    assert Session.objects.get().cut_short


def test_more_boots_are_dispatched_as_the_first_and_older_attempts_count_no_more(done: Session) -> None:
    for _number in range(9):
        build_attempt(done, state=Attempt.State.LOST, agent="one")
    Boot.objects.update(state_since=Attempt.objects.latest("created_at").created_at)
    extend(done)
    (waiting,) = read_snapshot().sessions
    assert waiting.fruitless == 0


@pytest.mark.parametrize(
    ("failed", "state"), [(1, SessionState.PLANNED), (2, SessionState.PLANNED), (3, SessionState.FAILED)]
)
def test_some_of_many_boots_may_fail_but_not_too_many(done: Session, failed: int, state: str) -> None:
    extend(done)
    end_boots(done, BootState.MEASURED)
    finish_session(session=done)
    extend(done, 4, 4)
    end_boots(done, BootState.FAILED, arm="patched", last=failed)
    finish_session(session=done)
    assert done.state == state
    if state == SessionState.FAILED:
        assert done.reason == "patched kernel gave no measurement in 3 boots, last: panic: no"


def test_kernel_that_never_boots_ends_its_session_after_two_boots() -> None:
    session = build_trial_session(build_trial(state=TrialState.MEASURING, looks=[16]))
    end_boots(session, BootState.FAILED, arm="base", last=2)
    finish_session(session=session)
    assert session.state == SessionState.FAILED


def test_what_was_measured_stays_when_the_machine_goes_away_for_more(done: Session, wakes: Sent) -> None:
    extend(done)
    assert end_session(done, SessionState.FAILED, because("machine vm-haswell is disabled"))
    assert (done.state, done.cut_short, done.reason) == (
        SessionState.DONE,
        True,
        "cut short: machine vm-haswell is disabled",
    )
    assert done.concluded_at is not None
    assert done.boots.filter(state=BootState.FAILED).count() == 4
    assert wakes[-1] == ("detection.look", (done.trial_id,))


def test_session_of_its_first_boots_fails_as_ever() -> None:
    session = build_trial_session(build_trial(state=TrialState.MEASURING, looks=[2, 4]))
    end_boots(session, BootState.MEASURED, last=3)
    end_session(session, SessionState.FAILED, because("machine vm-haswell is disabled"))
    assert (session.state, session.cut_short) == (SessionState.FAILED, False)
