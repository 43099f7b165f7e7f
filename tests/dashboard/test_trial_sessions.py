"""Sessions of trials that are of no series stand on pages as what they are for."""

import pytest
from django.test import Client

from tests.builders import build_machine, build_series, build_trial, build_trial_session

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
