"""The sweep that plans: from applied series and wanted trials to sessions, whatever one of them runs into."""

import pytest
from pytest_django.fixtures import Settings

from server.builds.models import Build, BuildState
from server.core.errors import DomainError
from server.lab.models import Session, Trial, TrialState
from server.lab.trials import life
from tests.builders import build_machine, build_series, build_trial
from workers import builds

pytestmark = pytest.mark.django_db


def test_sweep_takes_series_and_trials_to_their_sessions(settings: Settings) -> None:
    settings.SERIES_HOURS = 2.0
    build_machine()
    series, trial = build_series(), build_trial()
    builds.sweep()
    assert Build.objects.filter(state=BuildState.WANTED).count() == 4
    Build.objects.update(state=BuildState.BUILT, build_id="ab")
    builds.sweep()
    builds.sweep()
    own = Trial.objects.get(series=series)
    assert (own.key, own.purpose, own.looks, own.budget_seconds) == (
        f"series:{series.pk}",
        "series",
        [4, 6, 8, 12, 16],
        7200,
    )
    assert {(one.trial, one.series) for one in Session.objects.all()} == {(own, series), (trial, None)}


def test_no_limit_of_machine_time_is_no_budget(settings: Settings) -> None:
    settings.SERIES_HOURS = 0
    build_series()
    builds.sweep()
    assert Trial.objects.get().budget_seconds is None


def test_trouble_of_one_trial_keeps_no_other_from_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    build_machine()
    first, second = build_trial(priority=1), build_trial()
    plan = life.plan_trial

    def fail(*, trial_id: int) -> list[Session]:
        if trial_id == first.pk:
            raise DomainError("busy", "moved meanwhile", permanent=False)
        return plan(trial_id=trial_id)

    monkeypatch.setattr(life, "plan_trial", fail)
    builds.sweep()
    assert set(Build.objects.values_list("revision", flat=True)) == {second.base_id, second.patched_id}
    assert Trial.objects.get(pk=first.pk).state == TrialState.WANTED
