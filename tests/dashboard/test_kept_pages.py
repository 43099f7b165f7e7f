"""Pages that readers without a cookie get again while nothing is written."""

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from server.core.rows import kept
from server.core.rows.kept import KeptAnswers
from server.dashboard.frame import kept_pages
from server.detection.models import Finding
from tests.builders import build_finding, build_series
from tests.found_scenarios import moved_timeline

_NONCE = re.compile(r'nonce="([^"]+)"')


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The version of the data: other tests write to other databases of the same server, which is one to its snapshots.

    Time stands as well, or a page might be asked for just when its seconds are over.
    """
    version = ["first"]
    monkeypatch.setattr(kept, "data_version", lambda: version[-1])
    monkeypatch.setattr(kept_pages, "ANSWERS", KeptAnswers())
    monkeypatch.setattr(kept_pages, "_SECONDS", 10**9)
    return version


def queries(client: Client, path: str, status: int = 200) -> int:
    with CaptureQueriesContext(connection) as asked:
        assert client.get(path).status_code == status
    return len(asked)


@pytest.mark.django_db
def test_page_is_given_again_as_it_was(client: Client) -> None:
    path = f"/findings/{build_finding(build_series()).pk}/"
    first = client.get(path)
    with CaptureQueriesContext(connection) as asked:
        again = client.get(path)
    assert (len(asked), again.content) == (0, first.content)
    names = ("Content-Type", "Vary", "Content-Security-Policy", "X-Frame-Options")
    assert [again.headers[name] for name in names] == [first.headers[name] for name in names]
    assert "Cookie" in again.headers["Vary"]


@pytest.mark.django_db
def test_what_is_written_makes_it_anew(client: Client, still: list[str]) -> None:
    finding = build_finding(build_series())
    path = f"/findings/{finding.pk}/"
    client.get(path)
    Finding.objects.filter(pk=finding.pk).update(headline="Told anew.")
    still.append("second")
    assert b"Told anew." in client.get(path).content


@pytest.mark.django_db
def test_page_of_another_moment_takes_the_place_of_the_one_before(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be given again would push out what can."""
    path, other = (f"/findings/{build_finding(build_series()).pk}/" for _ in range(2))
    monkeypatch.setattr(kept_pages, "ANSWERS", KeptAnswers(3 * len(client.get(other).content)))
    client.get(other)
    for seconds in (10**8, 10**7, 10**6, 10**5):
        monkeypatch.setattr(kept_pages, "_SECONDS", seconds)
        assert queries(client, path) > 0
    assert queries(client, path) == 0
    monkeypatch.setattr(kept_pages, "_SECONDS", 10**9)
    assert queries(client, other) == 0


@pytest.mark.django_db
def test_who_is_signed_in_gets_a_page_of_his_own(client: Client) -> None:
    path = f"/findings/{build_finding(build_series()).pk}/"
    own = Client()
    own.force_login(User.objects.create_user("ada"))
    assert b"Sign out" in own.get(path).content
    assert b"Sign out" not in client.get(path).content
    assert b"Sign out" in own.get(path).content


@pytest.mark.django_db
def test_each_reader_has_a_nonce_of_his_own(client: Client) -> None:
    path = f"/timelines/{moved_timeline().pk}/"
    pages = [client.get(path) for _ in range(2)]
    nonces = [set(_NONCE.findall(page.content.decode())) for page in pages]
    assert [len(of) for of in nonces] == [1, 1]
    assert nonces[0] != nonces[1]
    for page, of in zip(pages, nonces, strict=True):
        assert f"'nonce-{of.pop()}'" in page.headers["Content-Security-Policy"]


@pytest.mark.django_db
def test_addresses_that_only_look_alike_when_they_are_put_in_order_are_two_questions(client: Client) -> None:
    raw = "author=\u00e9".encode().decode("latin-1")
    told = [client.get("/findings/", QUERY_STRING=asked) for asked in (raw, "author=%C3%83%C2%A9")]
    assert [answer.wsgi_request.GET["author"] for answer in told] == ["\u00e9", "\u00c3\u00a9"]
    assert told[0].content != told[1].content


@pytest.mark.django_db
def test_what_is_not_there_is_looked_for_again(client: Client) -> None:
    assert queries(client, "/findings/1/", 404) == queries(client, "/findings/1/", 404) > 0
