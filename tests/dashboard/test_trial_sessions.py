"""Sessions of trials that are of no series stand on pages as what they are for."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.dashboard.session_page import session_facts
from server.lab.hosts.probes import keep_facts
from server.lab.models import Conditions
from tests.builders import build_boot, build_machine, build_series, build_trial, build_trial_session

pytestmark = pytest.mark.django_db
FOR = "trial: what one patch of a series adds"


def test_session_of_a_trial_is_shown_on_its_page_in_the_queue_and_at_its_machine(client: Client) -> None:
    session = build_trial_session(build_trial(purpose="patch", series=build_series()), build_machine("m1"))
    for path in (f"/sessions/{session.pk}/", "/queue/", "/machines/m1/"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert FOR in answer.text, path
    assert "Health session" not in client.get(f"/sessions/{session.pk}/").text


def test_api_tells_of_it_too(client: Client) -> None:
    session = build_trial_session(build_trial(), build_machine("m1"))
    told = client.get(f"/api/v1/sessions/{session.pk}/").json()
    assert (told["purpose"], told["series"]) == ("trial", None)
    queue = client.get("/api/v1/queue/").json()
    assert [row["title"] for row in queue["rows"]] == ["trial: a tree's head against its reference kernel"]


def test_page_reads_few_documents_however_many_its_boots_sent() -> None:
    """A machine that is not honest sends other facts in each boot, megabytes of them."""
    session = build_trial_session(build_trial(), build_machine("m1"))
    for number in range(12):
        boot = build_boot(session, 100 + number, "base", measured=True)
        keep_facts(boot, {"governor": f"one-{number}", "kernel_release": f"7.3.{number}"})
        settings = [
            {"name": "smt", "wanted": "off", "before": "on", "after": str(number), "outcome": "set", "note": ""}
        ]
        Conditions.objects.update_or_create(boot=boot, defaults={"document": {"settings": settings}})
    with CaptureQueriesContext(connection) as ran:
        told = session_facts(session.pk, logs=False)
    assert told is not None
    assert [row.kernel_release for row in told.boots if row.kernel_release] == [f"7.3.{n}" for n in range(12)]
    assert told.differing == ("governor",)
    assert told.differing_settings == ("smt",)
    documents = [q["sql"] for q in ran.captured_queries if '"lab_facts"."document"' in q["sql"]]
    assert max(sql.rpartition("IN (")[2].count(",") for sql in documents) == 7
