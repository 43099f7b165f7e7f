"""Series that people hand in by way of the API: they go the way of mails, and nothing that they say opens anything."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from server.api import permissions
from server.api.acts import series as series_acts
from server.core.access.people import issue_person_token
from server.core.models import PersonToken
from server.reports.progress import series_history
from server.sources.models import MailingList, Message, Series
from server.sources.series.formation import group_stale

pytestmark = pytest.mark.django_db
ACTOR = "ada (token ci)"
Scope = PersonToken.Scope


@pytest.fixture
def client() -> Client:
    user = User.objects.create_user("ada")
    rights = [name.partition(".")[2] for name in permissions.PERMISSIONS.values()]
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    secret = issue_person_token(user, name="ci", scopes=Scope.values).secret
    return Client(headers={"Authorization": f"Bearer {secret}"})


PATCH = """\
From: Eve Writer <eve@example.org>
Date: Sun, 1 Nov 2026 12:00:0{n} +0000
Subject: [PATCH {n}/2] mm: Clear page {n}
Message-ID: <{id}-{n}@example.org>
{reply}
Clear it.

Signed-off-by: Eve Writer <eve@example.org>
---
 mm/memory.c | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/mm/memory.c b/mm/memory.c
index 1111111111111111111111111111111111111111..2222222222222222222222222222222222222222 100644
--- a/mm/memory.c
+++ b/mm/memory.c
@@ -{n} +{n} @@
-int a;
+int {what};
"""


def mbox(name: str = "a", what: str = "b") -> bytes:
    first = PATCH.format(n=1, id=name, reply="", what=what)
    second = PATCH.format(n=2, id=name, reply=f"In-Reply-To: <{name}-1@example.org>\n", what=what)
    return "".join(f"From mboxrd@z Thu Jan  1 00:00:00 1970\n{mail}\n" for mail in (first, second)).encode()


def handed_in(client: Client, box: bytes, status: int, kind: str = "application/mbox") -> dict[str, Any]:
    answer = client.post("/api/v1/series/", box, kind)
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return {**found, "Location": answer.headers.get("Location", "")}


@pytest.mark.parametrize("kind", ["application/mbox", "text/plain", "text/plain; charset=utf-8"])
def test_series_that_is_handed_in_goes_the_way_of_mails(client: Client, kind: str) -> None:
    told = handed_in(client, mbox(), 202, kind)
    assert (told["message_id"], told["mails"], told["stored"], told["series"]) == ("a-1@example.org", 2, 2, [])
    assert client.get(told["Location"]).json()["results"] == []
    group_stale()
    series = Series.objects.get()
    assert (series.total, series.state, series.mailing_list.name) == (2, "held", "submitted")
    assert [row["id"] for row in client.get(told["Location"]).json()["results"]] == [series.pk]
    assert [step.actor for step in series_history(series) if step.subject == "message"] == [ACTOR] * 2
    # The same once more is there already, and answers where it is.
    again = handed_in(client, mbox(), 200, kind)
    assert (again["stored"], again["series"]) == (0, [series.pk])
    assert again["Location"].endswith(f"/api/v1/series/{series.pk}/")
    assert Message.objects.count() == 2


@pytest.mark.parametrize(("query", "accept", "status"), [("?format=ndjson", "*/*", 400), ("", "text/csv", 406)])
def test_answer_of_an_act_is_no_table(client: Client, query: str, accept: str, status: int) -> None:
    """That the list at the same address has others is no matter."""
    answer = client.post(f"/api/v1/series/{query}", mbox(), "application/mbox", headers={"Accept": accept})
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert not Message.objects.exists()


def test_other_content_under_a_message_id_is_a_conflict(client: Client) -> None:
    handed_in(client, mbox(), 202)
    assert handed_in(client, mbox(what="c"), 409)["code"] == "other-content"
    assert handed_in(client, mbox("d") + mbox("d", "e"), 409)["code"] == "other-content"
    assert Message.objects.count() == 2


def test_what_a_mail_says_of_its_list_or_of_its_proof_counts_for_nothing(client: Client) -> None:
    MailingList.objects.create(name="linux-mm", address="linux-mm@example.org")
    claims = b"List-Id: <linux-mm.example.org>\nTo: linux-mm@example.org\nAuthentication-Results: x; dkim=pass\n"
    handed_in(client, mbox().replace(b"Message-ID:", claims + b"Message-ID:"), 202)
    assert set(Message.objects.values_list("mailing_list__name", flat=True)) == {"submitted"}


@pytest.mark.parametrize(
    ("box", "code"),
    [
        (b"", "no-mail"),
        (b"\0\xff" * 1000, "no-patch"),
        (b"From: a@example.org\nSubject: hello\n\nno patch\n", "no-patch"),
        (PATCH.format(n=1, id="x", reply="", what="b").encode() + b"\0" * 10, None),
        (b"From: a@b.c\nSubject: [PATCH] x\nContent-Type: multipart/mixed; boundary=" + b"b" * 500 + b"\n\n--", None),
    ],
)  # fmt: skip
def test_what_is_no_series_is_refused_and_nothing_is_stored(client: Client, box: bytes, code: str | None) -> None:
    answer = client.post("/api/v1/series/", box, "application/mbox")
    if code is None:
        assert answer.status_code in {202, 400}
        return
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not Message.objects.exists()


def test_bodies_are_bounded(client: Client) -> None:
    assert handed_in(client, b"x" * (series_acts.MOST_BYTES + 1), 413)["code"] == "too-large"
    many = b"From a Thu Jan  1 00:00:00 1970\nSubject: x\n\n" * 300
    assert handed_in(client, many, 413)["code"] == "too-large"
    assert handed_in(client, b"{}", 415, "application/json")["code"] == "unsupported-media-type"


# --- findings --------------------------------------------------------------------------
