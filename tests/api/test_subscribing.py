"""Subscriptions by way of the API: a person's own, with the scope alone."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from server.core.access.people import issue_person_token
from server.reports.models import Subscription
from server.reports.subscribers.subscription import hook_secret, subscribe
from tests.builders import build_uarch

pytestmark = pytest.mark.django_db
BASE = "/api/v1/subscriptions/"
HOOK = {"way": "webhook", "url": "https://hooks.example.org/x"}


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", "ada@example.org")


@pytest.fixture
def client(ada: User) -> Client:
    secret = issue_person_token(ada, name="ci", scopes=["subscribe"]).secret
    return Client(headers={"Authorization": f"Bearer {secret}"})


def post(client: Client, to: str = "", /, **body: Any) -> Any:
    return client.post(f"{BASE}{to}", body, "application/json")


def test_a_subscription_is_made_listed_changed_and_ended(client: Client) -> None:
    build_uarch("zen3")
    made = post(client, way="mail", uarch="zen3", claim="regressed")
    assert (made.status_code, made.json()["wish"], made.json()["secret"]) == (201, "what regressed on zen3", None)
    assert post(client, way="mail", uarch="zen3", claim="regressed").status_code == 200
    number = made.json()["id"]
    changed = post(client, f"{number}/change/", uarch="zen3", path="mm/")
    assert changed.json()["wish"] == "what changed on zen3 by series that touch mm/"
    (row,) = client.get(BASE).json()
    assert (row["id"], row["claim"], row["path"], row["ended_at"]) == (number, "", "mm/", None)
    assert post(client, f"{number}/end/").json()["ended_at"] is not None
    assert client.get(BASE).json() == []
    assert post(client, f"{number}/change/").status_code == 409


def test_secret_is_told_by_the_answer_that_made_it_alone(client: Client) -> None:
    answer = post(client, **HOOK)
    made = answer.json()
    row = Subscription.objects.get(pk=made["id"])
    assert made["secret"] == hook_secret(row)
    assert answer["Cache-Control"] == "no-store"
    assert post(client, **HOOK).json()["secret"] is None
    assert "whsec_" not in client.get(BASE).content.decode()
    answer = post(client, f"{row.pk}/secret/")
    renewed = answer.json()["secret"]
    assert answer["Cache-Control"] == "no-store"
    row.refresh_from_db()
    assert renewed == hook_secret(row) != made["secret"]


def test_nobody_reads_or_changes_those_of_another(client: Client) -> None:
    eve = User.objects.create_user("eve", "eve@example.org")
    row, _ = subscribe(eve, HOOK)
    assert client.get(BASE).json() == []
    for step in ("change", "secret", "end"):
        assert post(client, f"{row.pk}/{step}/").status_code == 404
    row.refresh_from_db()
    assert row.ended_at is None


def test_reading_is_private_to_caches_and_refusals_name_the_field(client: Client) -> None:
    answer = client.get(BASE)
    assert "public" not in answer.get("Cache-Control", "")
    assert answer.get("Access-Control-Allow-Origin") is None
    refused = post(client, way="mail", uarch="zen9")
    assert (refused.status_code, refused.json()["code"]) == (400, "bad-subscription")
    assert refused.json()["title"].startswith("uarch: there is no zen9")
    assert post(client, way="mail", machine="x").status_code == 400
    assert client.get(f"{BASE}?page=2").status_code == 400
