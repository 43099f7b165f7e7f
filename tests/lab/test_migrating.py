"""Databases of sites from before attempts knew their machines."""

import importlib

import pytest
from django.db import connection

from server.lab.models import Attempt
from tests.builders import build_machine, build_series, build_session
from tests.lab.test_hosts import an_attempt

pytestmark = pytest.mark.django_db


def test_two_attempts_that_were_active_on_one_machine_do_not_stop_the_migration() -> None:
    machine = build_machine()
    for states in (["lost", "running"], ["queued"], ["done"]):
        session = build_session(build_series(), machine)
        for state in states:
            an_attempt(session, state, machine=None)
    fill = importlib.import_module("migrations.lab.0007_attempts_of_machines").FILL
    with connection.cursor() as cursor:
        cursor.execute(fill)
    rows = Attempt.objects.order_by("id").values_list("state", "machine__name")
    assert list(rows) == [("lost", machine.name), ("running", machine.name), ("queued", None), ("done", machine.name)]
