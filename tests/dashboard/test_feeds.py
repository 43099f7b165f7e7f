"""Findings as Atom feeds."""

from collections.abc import Callable
from xml.etree import ElementTree as ET

import pytest
from django.test import Client

from server.core.reasons import Because
from server.detection.models import Finding
from tests.builders import because
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline, split_finding

pytestmark = pytest.mark.django_db

_ATOM = "{http://www.w3.org/2005/Atom}"


@pytest.fixture
def entries(client: Client) -> Callable[[str], list[ET.Element]]:
    def read(path: str) -> list[ET.Element]:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert answer["Content-Type"].startswith("application/atom+xml")
        return ET.fromstring(answer.content).findall(f"{_ATOM}entry")  # noqa: S314 (the service's own)

    return read


def text_of(entry: ET.Element, name: str) -> str:
    return entry.findtext(f"{_ATOM}{name}") or ""


Entries = Callable[[str], list[ET.Element]]


def test_feed_has_findings_of_series_and_branches_with_names_that_stay(entries: Entries) -> None:
    finding, _ = split_finding(), moved_timeline()
    found = entries("/findings/feed/")
    assert {text_of(entry, "title") for entry in found} >= {finding.headline}
    before = {text_of(entry, "id"): text_of(entry, "updated") for entry in found}
    assert len(before) == len(found) == Finding.objects.count()
    Finding.objects.get(pk=finding.pk).advance(Finding.State.ACCEPTED, because("known"))
    after = {text_of(entry, "id"): text_of(entry, "updated") for entry in entries("/findings/feed/")}
    assert set(after) == set(before)
    assert after != before


def test_feed_says_where_by_how_much_and_which_commit(entries: Entries) -> None:
    timeline = moved_timeline()
    (entry,) = entries(f"/trees/{timeline.branch.tree.name}/feed/")
    text = text_of(entry, "summary")
    assert "zen3: regressed 11 % slower mm-basic/folio-copy-2m time" in text
    assert "between" in text
    assert {category.get("term") for category in entry.findall(f"{_ATOM}category")} == {"regressed", "zen3"}


def test_feed_of_a_tree_has_nothing_of_others(entries: Entries) -> None:
    first, second = moved_timeline(), moved_timeline("mm")
    assert len(entries("/findings/feed/")) == 2
    ids = {text_of(entry, "id") for entry in entries(f"/trees/{first.branch.tree.name}/feed/")}
    others = {text_of(entry, "id") for entry in entries(f"/trees/{second.branch.tree.name}/feed/")}
    assert len(ids) == len(others) == 1
    assert ids != others


def test_what_is_only_suspected_is_no_news(entries: Entries) -> None:
    moved_timeline()
    Finding.objects.update(state=Finding.State.CANDIDATE)
    assert entries("/findings/feed/") == []


def test_claim_that_was_withdrawn_says_so(entries: Entries) -> None:
    moved_timeline()
    Finding.objects.get().advance(Finding.State.INVALID, Because.NOISE("noise: seen by nobody else"))
    (entry,) = entries("/findings/feed/")
    assert text_of(entry, "title").startswith("Withdrawn: ")
    assert "noise: seen by nobody else" in text_of(entry, "summary")


def test_virtual_findings_are_told_only_where_the_site_judges_them(
    entries: Entries, request: pytest.FixtureRequest
) -> None:
    moved_timeline()
    Finding.objects.update(virtual=True)
    assert entries("/findings/feed/") == []
    request.getfixturevalue("virtual_verdicts")
    assert len(entries("/findings/feed/")) == 1


def test_text_of_others_is_escaped_and_breaks_no_feed(entries: Entries) -> None:
    timeline = moved_timeline()
    finding = Finding.objects.get()
    finding.headline = "Regressed <script>alert(1)</script> \x01\ufffe & more"
    finding.save()
    assert finding.after is not None
    type(finding.after).objects.filter(pk=finding.after.pk).update(subject="mm: <img src=x onerror=alert(1)>\x02")
    (entry,) = entries(f"/trees/{timeline.branch.tree.name}/feed/")
    assert "<script>alert(1)</script>" in text_of(entry, "title")
    assert "<img" not in text_of(entry, "summary")


def test_feed_that_did_not_change_is_not_sent_again(client: Client) -> None:
    moved_timeline()
    mark = client.get("/findings/feed/")["ETag"]
    assert client.get("/findings/feed/", headers={"If-None-Match": mark}).status_code == 304
    Finding.objects.update(headline="Other words at the same moment")
    assert client.get("/findings/feed/", headers={"If-None-Match": mark}).status_code == 200


def test_empty_feed_is_a_feed(entries: Entries) -> None:
    assert entries("/findings/feed/") == []


def test_feed_of_an_unknown_tree_is_not_found(reader: Reader) -> None:
    reader.read("/trees/nowhere/feed/", status=404)


def test_pages_name_their_feeds(reader: Reader) -> None:
    name = moved_timeline().branch.tree.name
    assert 'href="/findings/feed/"' in reader.read("/")
    assert f'href="/trees/{name}/feed/"' in reader.read(f"/trees/{name}/")
