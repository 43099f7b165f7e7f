from typing import Any

import pytest
from pytest_django.fixtures import DjangoCaptureOnCommitCallbacks

from server.core.access.tries import MOST_BEGUN, OutOfBoundsError
from server.core.database import advisory_lock
from server.core.models import Begun
from server.detection.models import Finding
from server.detection.sweep import PARTS
from server.lab.models import Session, Trial
from tests.builders import build_series, build_trial, build_trial_session
from tests.detection.measured import STEADY, measured_session, measured_trial, physical
from workers import detection

pytestmark = pytest.mark.django_db

Sent = list[tuple[str, tuple[int | str, ...]]]


@pytest.fixture
def swept(sent_tasks: Sent, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Any:
    def sweep() -> Sent:
        sent_tasks.clear()
        with django_capture_on_commit_callbacks(execute=True):
            detection.sweep()
        # What goes on by itself is asked for at every sweep.
        return [task for task in sent_tasks if task[0] != "detection.tend"]

    return sweep


def test_series_whose_sessions_are_over_is_found_until_it_is_judged(swept: Any) -> None:
    series = build_series()
    measured_session(series, physical("h1", "haswell"), {"copy": STEADY})
    trial = Trial.objects.get()
    assert swept() == [("detection.look", (trial.pk,))]
    detection.look(trial.pk)
    assert swept() == [("detection.answer", (trial.pk,))]
    detection.answer(trial.pk)
    assert Finding.objects.get().series == series
    assert swept() == []


def test_boots_that_nobody_looked_at_are_found_while_other_machines_measure(swept: Any) -> None:
    trial = measured_trial(None, {physical("h1", "haswell"): {"copy": STEADY}}, purpose="head")
    build_trial_session(trial, physical("z1", "zen1"), state=Session.State.RUNNING)
    assert swept() == [("detection.look", (trial.pk,))]
    detection.look(trial.pk)
    assert swept() == []


def test_a_trial_whose_sessions_are_over_is_found_until_it_is_answered(swept: Any) -> None:
    series = build_series()
    trial = measured_trial(series, {physical("h1", "haswell"): {"copy": STEADY}})
    assert swept() == [("detection.look", (trial.pk,))]
    detection.look(trial.pk)
    assert swept() == [("detection.answer", (trial.pk,))]
    detection.answer(trial.pk)
    assert swept() == []
    assert Finding.objects.get().trial == trial


@pytest.mark.parametrize("state", ["failed", "canceled"])
def test_trials_that_ended_without_a_result_are_answered_too(swept: Any, state: str) -> None:
    trial = build_trial(state=state)
    assert swept() == [("detection.answer", (trial.pk,))]


def test_trials_that_wait_for_kernels_are_left_alone(swept: Any) -> None:
    build_trial(state=Trial.State.WANTED)
    assert swept() == []


def test_every_part_is_tended_by_a_task_of_its_own(
    sent_tasks: Sent,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tended: list[str] = []
    with django_capture_on_commit_callbacks(execute=True):
        detection.sweep()
    asked = [str(args[0]) for name, args in sent_tasks if name == "detection.tend"]
    assert asked == ["noise", "heads", "bisections", "life"]
    for part in asked:
        monkeypatch.setitem(PARTS, part, lambda: tended.append("x"))
        detection.tend(part)
    assert len(tended) == 4


@pytest.mark.django_db(transaction=True)
def test_look_that_is_under_way_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(detection, "look_at_trial", lambda *, trial_id: looked.append(trial_id))
    with advisory_lock("detection.look.7") as free:
        assert free
        detection.look(7)
        detection.look(8)
    detection.look(7)
    assert looked == [8, 7]


@pytest.mark.parametrize("deaths", ["killed", "out of memory"])
def test_trial_whose_looks_end_their_workers_fails_and_says_so(
    monkeypatch: pytest.MonkeyPatch, deaths: str, swept: Any
) -> None:
    """Else it would be begun again at every sweep, for ever, and keep the workers from all other work."""
    trial = measured_trial(build_series(), {physical("h1", "haswell"): {"copy": STEADY}})
    going_on = build_trial_session(trial, physical("z1", "zen1"), state=Session.State.PLANNED)

    def die(*, trial_id: int) -> None:
        raise MemoryError

    for _ in range(MOST_BEGUN):
        assert ("detection.look", (trial.pk,)) in swept()
        if deaths == "killed":
            Begun.objects.create(key=f"detection.look.{trial.pk}")
            continue
        with monkeypatch.context() as patch:
            patch.setattr(detection, "look_at_trial", die)
            with pytest.raises(OutOfBoundsError):
                detection.look(trial.pk)
    detection.look(trial.pk)
    trial.refresh_from_db()
    going_on.refresh_from_db()
    assert (trial.state, going_on.state) == ("failed", "canceled")
    assert trial.reason == "3 looks at it took more than a worker has"
    assert trial.sessions.get(machine__name="h1").concluded_at is not None
    assert swept() == [("detection.answer", (trial.pk,))]
    detection.answer(trial.pk)
    assert swept() == []
