"""A trial that is over goes to whoever asked, once."""

import pytest

from server.core.errors import DomainError
from server.detection import on_trial_over
from server.detection.on_trial_over import HANDLERS, answer_trial
from server.lab.models import Trial
from tests.builders import build_trial

pytestmark = pytest.mark.django_db


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    monkeypatch.setitem(HANDLERS, "head", lambda trial: seen.append(trial.pk))
    return seen


def test_every_purpose_has_somebody_who_takes_its_answer() -> None:
    assert set(HANDLERS) == set(Trial.Purpose.values)


@pytest.mark.parametrize("state", ["done", "failed", "canceled"])
def test_a_trial_that_is_over_is_answered_once(taken: list[int], state: str) -> None:
    trial = build_trial(state=state)
    assert answer_trial(trial_id=trial.pk)
    assert not answer_trial(trial_id=trial.pk)
    assert taken == [trial.pk]


def test_a_trial_that_is_measured_is_not_answered(taken: list[int]) -> None:
    assert not answer_trial(trial_id=build_trial(state=Trial.State.MEASURING).pk)
    assert taken == []


def test_a_handler_that_fails_is_asked_again(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    trial = build_trial(state="done")

    def fail(trial: Trial) -> None:
        raise DomainError("broken", str(trial))

    with monkeypatch.context() as patched:
        patched.setitem(on_trial_over.HANDLERS, "head", fail)
        with pytest.raises(DomainError):
            answer_trial(trial_id=trial.pk)
    trial.refresh_from_db()
    assert trial.answered_at is None
    assert answer_trial(trial_id=trial.pk)
    assert taken == [trial.pk]


def test_an_unknown_trial_is_a_permanent_error() -> None:
    with pytest.raises(DomainError) as caught:
        answer_trial(trial_id=123456)
    assert (caught.value.code, caught.value.permanent) == ("trial-unknown", True)
