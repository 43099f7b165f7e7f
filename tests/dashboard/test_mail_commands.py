"""Commands by mail on the pages of what they are about, and in the API."""

import pytest
from django.test import Client
from django.urls import reverse

from server.reports.commands.inbox import obey_mail, read_new_mails
from server.reports.models import MailCommand
from server.sources.messages.storage import store_message
from tests.builders import build_list
from tests.fuzz.replies import COVERED, LOOKUP, Told, letter, tell
from tests.sources.signing import sign

pytestmark = pytest.mark.django_db
AUTHOR = "author@example.org"


@pytest.fixture
def told() -> Told:
    """A mail with one command that is obeyed, and one of a stranger that is not."""
    told = tell(AUTHOR, build_list())
    own = sign(letter(told, "#tidemark accept: it pays\n", sender=AUTHOR, name="a@e.e"), headers=COVERED[:6])
    strange = letter(told, "#tidemark invalid: <script>x</script>\n", sender="eve@evil.example", name="b@e.e")
    for raw in (own, strange):
        mail = store_message(mailing_list=build_list(), raw=raw)
        read_new_mails()
        obey_mail(message_id=mail.pk, lookup=LOOKUP)
    return told


def test_pages_show_each_command_with_its_outcome(client: Client, told: Told) -> None:
    finding = told.delivery.report.finding
    assert finding is not None
    for address in (
        reverse("series-part", args=[finding.series_id, "mail"]),
        reverse("finding-part", args=[finding.pk, "life"]),
    ):
        page = client.get(address).content.decode()
        assert "#tidemark accept: it pays" in page
        assert "author of what was measured" in page
        assert "stored and not obeyed" in page
        assert "its sender may not ask for it" in page
        assert "&lt;script&gt;x" in page


def test_the_api_lists_them_by_outcome(client: Client, told: Told) -> None:
    def ids(query: str) -> list[str]:
        return [row["message_id"] for row in client.get(f"/api/v1/commands/?{query}").json()["results"]]

    assert ids("") == ["b@e.e", "a@e.e"]
    assert ids("state=done") == ["a@e.e"]
    assert ids("state=ignored") == ["b@e.e"]
    assert ids(f"sender={AUTHOR}") == ["a@e.e"]
    assert ids(f"finding={told.delivery.report.finding_id}") == ["b@e.e", "a@e.e"]
    assert ids("finding=0") == []
    assert client.get("/api/v1/commands/?state=obeyed").status_code == 400
    [row] = client.get("/api/v1/commands/?state=done").json()["results"]
    assert (row["text"], row["verb"], row["role"]) == ("#tidemark accept: it pays", "accept", "author")
    assert MailCommand.objects.count() == 2
