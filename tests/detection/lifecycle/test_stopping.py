"""Trials about findings that have ended."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from pytest_django.fixtures import Settings

from server.detection.branches.release import Why, invalidate
from server.detection.lifecycle.confirmation import begin_checks
from server.detection.models import Finding
from server.detection.sweep import tend_life
from server.lab.models import Trial
from tests.detection.lifecycle.findings import UP, candidate, give_layout
from tests.detection.measured import physical


@pytest.mark.django_db(transaction=True)
def test_a_trial_that_is_being_answered_is_not_waited_for_but_stopped_by_the_sweep(settings: Settings) -> None:
    """Who answers a trial holds it and waits for the finding: waiting for the trial in turn would be a deadlock."""
    settings.BISECT_HOURS = 0
    machine = physical("m1", "zen3")
    give_layout(machine)
    finding = candidate({machine: {"fork": UP}})
    begin_checks(finding)
    with ThreadPoolExecutor(1) as other, transaction.atomic():
        trial = Trial.objects.select_for_update().get(purpose=Trial.Purpose.LAYOUT)
        other.submit(_withdraw, finding).result(timeout=5)
    trial.refresh_from_db()
    assert trial.state == Trial.State.WANTED
    tend_life()
    trial.refresh_from_db()
    assert (trial.state, trial.reason) == (Trial.State.CANCELED, f"finding {finding.pk} is invalid")


def _withdraw(finding: Finding) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")
        invalidate(finding, actor="ada", why=Why.NOISE, reason="a fan failed")
    finally:
        connection.close()
