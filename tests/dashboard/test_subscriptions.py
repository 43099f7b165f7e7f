"""The page on which a person says what he wants to be told of."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from server.reports.models import Subscription
from server.reports.subscribers.subscription import hook_secret, subscribe
from tests.builders import build_uarch
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> User:
    user = User.objects.create_user("ada", "ada@example.org", "a long enough word")
    client.force_login(user)
    return user


def test_nobody_reads_it_without_signing_in(client: Client) -> None:
    answer = client.get("/subscriptions/")
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/")
    assert client.post("/subscriptions/add/").status_code == 302
    assert not Subscription.objects.exists()


def test_a_person_subscribes_and_ends_it(client: Client, ada: User) -> None:
    build_uarch("zen3")
    reader = Reader(client)
    answer = client.post("/subscriptions/add/", {"uarch": "zen3", "claim": "regressed"}, follow=True)
    assert "You will be told of what regressed on zen3." in answer.content.decode()
    row = Subscription.objects.get(user=ada)
    assert "to ada@example.org" in reader.read("/subscriptions/")
    client.post(f"/subscriptions/{row.pk}/end/")
    assert "You have no subscription." in reader.read("/subscriptions/")


def test_what_is_wrong_is_said_and_what_was_typed_stays(client: Client, ada: User) -> None:
    answer = client.post("/subscriptions/add/", {"way": "webhook", "url": "gopher://x", "path": "mm/"})
    assert answer.status_code == 400
    text = answer.content.decode()
    assert "url: an address that begins with https://" in text
    assert 'value="gopher://x"' in text
    assert 'value="mm/"' in text
    assert not Subscription.objects.filter(user=ada).exists()


def test_secret_and_end_are_the_owners_alone(client: Client, ada: User) -> None:
    eve = User.objects.create_user("eve", "eve@example.org", "a long enough word")
    row, _ = subscribe(eve, {"way": "webhook", "url": "https://hooks.example.org/x"})
    assert "hooks.example.org" not in Reader(client).read("/subscriptions/")
    assert client.post(f"/subscriptions/{row.pk}/end/").status_code == 404
    row.refresh_from_db()
    assert row.ended_at is None
    for step in ("change", "secret"):
        assert client.post(f"/subscriptions/{row.pk}/{step}/").status_code == 404


def secret_on(page: str) -> str:
    return page.partition('class="secret">')[2].partition("<")[0]


def test_secret_of_a_webhook_is_shown_once_and_made_anew_when_it_is_lost(client: Client, ada: User) -> None:
    given = {"way": "webhook", "url": "https://hooks.example.org/x"}
    assert client.post("/subscriptions/add/", given).status_code == 302
    # Nor is it in the rows of sessions.
    assert "whsec_" not in str(dict(client.session))
    page = client.get("/subscriptions/")
    first = secret_on(page.content.decode())
    row = Subscription.objects.get(user=ada)
    assert first == hook_secret(row)
    # Neither going back nor another who sits down there sees it again.
    assert "no-store" in page["Cache-Control"]
    assert "whsec_" not in Reader(client).read("/subscriptions/")
    # Asked for twice it is the same one, and tells its secret to nobody again.
    assert "whsec_" not in client.post("/subscriptions/add/", given, follow=True).content.decode()
    second = secret_on(client.post(f"/subscriptions/{row.pk}/secret/", follow=True).content.decode())
    row.refresh_from_db()
    assert second == hook_secret(row) != first
    assert "whsec_" not in Reader(client).read("/subscriptions/")


def test_subscription_is_changed_in_its_place(client: Client, ada: User) -> None:
    build_uarch("zen3")
    build_uarch("zen5")
    row, _ = subscribe(ada, {"uarch": "zen3", "claim": "regressed"})
    other, _ = subscribe(ada, {"uarch": "zen3"})
    answer = client.post(f"/subscriptions/{row.pk}/change/", {"uarch": "zen5", "pace": "each"}, follow=True)
    assert "From now on you are told of what changed on zen5." in answer.content.decode()
    row.refresh_from_db()
    assert (row.way, row.claim, row.uarch and row.uarch.name) == ("mail", "", "zen5")
    same = client.post(f"/subscriptions/{other.pk}/change/", {"uarch": "zen5"})
    assert same.status_code == 409
    assert "another subscription of yours says the same" in same.content.decode()
    wrong = client.post(f"/subscriptions/{row.pk}/change/", {"uarch": "zen9", "path": "mm/slab"})
    assert wrong.status_code == 400
    # What was typed stays in the form of the one that was to be changed.
    assert wrong.content.decode().count('value="mm/slab"') == 1


def test_hostile_names_do_no_harm(client: Client, ada: User) -> None:
    answer = client.post("/subscriptions/add/", {"uarch": "<script>\x00", "path": "\x00"})
    assert answer.status_code == 400
    assert "<script>" not in answer.content.decode().split("<main")[1]
