"""Several questions in one statement give what each would give alone."""

import pytest
from django.db import connection
from django.db.models import Count
from django.test.utils import CaptureQueriesContext

from server.core.rows.together import read_together
from server.lab.models import Attempt, Boot, Machine, Session, SessionState
from server.lab.scheduling.reader import seconds_held
from tests.builders import build_attempt, build_machine, build_series, build_session

pytestmark = pytest.mark.django_db


def test_answers_are_those_that_each_question_has_alone() -> None:
    for number in range(3):
        build_attempt(build_session(build_series(), build_machine(f"m{number}"), state=SessionState.RUNNING))
    Boot.objects.filter(position=0).update(notes=[{"case": "a", "reason": '"%s"'}])
    now = Machine.objects.earliest("state_since").state_since
    asked = (
        Machine.objects.order_by("-name").values_list("name", "uarch__name", "name", "capabilities", "state_since"),
        Session.objects.order_by("pk").values_list("pk", "machine__name", "series__subject", "deadline_at")[1:2],
        Boot.objects.order_by("pk").values_list("notes", "arm")[:4],
        Attempt.objects.order_by().values_list("machine").annotate(spent=seconds_held(now), n=Count("pk")),
        Session.objects.filter(state__in=[]).values_list("pk"),
        Machine.objects.filter(name="none").values_list("pk"),
    )
    alone = [[tuple(row) for row in one] for one in asked]
    with CaptureQueriesContext(connection) as captured:
        told = [[tuple(row) for row in rows] for rows in read_together(*asked)]
    assert [sorted(rows, key=repr) for rows in told] == [sorted(rows, key=repr) for rows in alone]
    assert told[:3] == alone[:3]
    assert len(captured) == 1


def test_nothing_is_asked_where_nothing_can_be_answered() -> None:
    with CaptureQueriesContext(connection) as captured:
        assert read_together(Session.objects.none().values_list("pk")) == [[]]
        assert read_together() == []
    assert len(captured) == 0
