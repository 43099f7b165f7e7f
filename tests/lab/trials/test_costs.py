from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import pytest
from django.utils import timezone

from server.lab.models import Boot, BootState, SessionState, TrialState
from server.lab.trials.question import Cost, spent
from tests.builders import EPOCH, build_machine, build_trial, build_trial_session

pytestmark = pytest.mark.django_db


def test_cost_is_the_time_of_boots_and_of_one_that_runs_until_now() -> None:
    trial, other = (build_trial(state=TrialState.MEASURING, looks=[2]) for _ in range(2))
    build_trial_session(trial, build_machine("m1"), state=SessionState.DONE)
    session = build_trial_session(trial, build_machine("m2"))
    build_trial_session(other, build_machine("m3"), state=SessionState.DONE)
    assert spent([trial.pk]) == Cost(2, 4, 120.0)
    assert spent([trial.pk, other.pk]) == Cost(3, 8, 240.0)
    first, again, jumped, _last = session.boots.order_by("position")
    Boot.objects.filter(pk=first.pk).update(state=BootState.RUNNING, started_at=timezone.now() - timedelta(seconds=600))
    Boot.objects.filter(pk=again.pk).update(started_at=EPOCH)
    Boot.objects.filter(pk=jumped.pk).update(
        state=BootState.FAILED, started_at=EPOCH, ended_at=EPOCH - timedelta(days=900)
    )
    cost = spent([trial.pk])
    assert (cost.sessions, cost.boots) == (2, 7)
    assert cost.seconds == pytest.approx(720, abs=5), "one that waits again costs nothing, nor does a clock that jumped"


def test_cost_of_nothing_is_nothing() -> None:
    assert spent([]) == Cost(0, 0, 0.0)
    assert spent([build_trial().pk]) == Cost(0, 0, 0.0)


def test_cost_of_many_trials_is_one_query(
    django_assert_num_queries: Callable[[int], AbstractContextManager[object]],
) -> None:
    trials = [build_trial(state=TrialState.MEASURING) for _ in range(3)]
    with django_assert_num_queries(1):
        spent([trial.pk for trial in trials])
