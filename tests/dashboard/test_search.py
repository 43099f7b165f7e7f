"""One box for everything that has a name."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils.http import urlencode

from server.detection.models import Finding
from server.sources.models import Patch, Series
from tests.builders import build_build, build_finding, build_machine, build_message, build_revision, build_series
from tests.dashboard.conftest import Reader
from tests.found_scenarios import split_finding

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("virtual_verdicts")]


@pytest.fixture
def finding() -> Finding:
    return split_finding()


def address(asked: str) -> str:
    return f"/search/?{urlencode({'q': asked})}"


def found(reader: Reader, asked: str) -> str:
    return " ".join(reader.read(address(asked)).split())


def goes_to(client: Client, asked: str) -> str:
    answer = client.get(address(asked))
    assert answer.status_code == 302, asked
    return str(answer["Location"])


def test_box_stands_on_every_page(reader: Reader) -> None:
    for path in ("/", "/machines/", "/search/", "/login/"):
        assert '<form role="search" action="/search/">' in reader.read(path)


def test_name_that_is_one_thing_leads_to_it(client: Client, finding: Finding) -> None:
    assert goes_to(client, "zen3-a") == "/machines/zen3-a/"
    assert goes_to(client, " ZEN3 ") == "/findings/?regressed_on=zen3"
    assert goes_to(client, "mm-basic") == "/findings/?benchmark=mm-basic"
    assert goes_to(client, f"finding {finding.pk}") == f"/findings/{finding.pk}/"
    assert goes_to(client, f"series #{finding.series_id}") == f"/series/{finding.series_id}/"


def test_name_that_is_two_things_shows_both(reader: Reader) -> None:
    build_machine("zen3", "zen3")
    text = found(reader, "zen3")
    assert 'href="/machines/zen3/"' in text
    assert 'href="/findings/?regressed_on=zen3"' in text


def test_beginning_of_a_name_finds_what_begins_so(reader: Reader, finding: Finding) -> None:
    text = found(reader, "zen")
    assert 'href="/machines/zen3-a/"' in text
    assert 'href="/machines/zen5-a/"' in text


@pytest.mark.parametrize(
    "write",
    ["{}", "<{}>", "Message-ID: <{}>", "https://lore.kernel.org/r/{}/", "https://lore.kernel.org/linux-mm/{}/T/#u"],
)
def test_message_id_leads_to_its_series(client: Client, write: str) -> None:
    series = build_series(root_message_id="20261101.1-bo@example.org")
    assert goes_to(client, write.format("20261101.1-bo@example.org")) == f"/series/{series.pk}/"


def test_message_id_of_another_mail_leads_to_the_mail(client: Client) -> None:
    mail = build_message(message_id="reply@example.org")
    assert goes_to(client, "reply@example.org") == f"/messages/{mail.pk}/"


def test_commit_shows_what_is_told_of_it(client: Client, reader: Reader, finding: Finding) -> None:
    assert finding.pk
    culprit = Finding.objects.get(pk=finding.pk).culprit
    assert culprit is not None
    text = found(reader, culprit.sha[:10]) if client.get(address(culprit.sha[:10])).status_code == 200 else ""
    assert f"/findings/{finding.pk}/" in (text or goes_to(client, culprit.sha[:10]))
    built = build_build(build_revision(subject="mm: Built alone"))
    assert goes_to(client, built.revision.sha) == f"/builds/{built.pk}/"


@pytest.mark.parametrize(
    "write", ["{}", "[PATCH v2 0/3] {}", "Re: [PATCH v2 0/3] {}", "AW: Re: [mm-unstable PATCH v2] {}"]
)
def test_subject_as_it_was_posted_or_answered_leads_to_the_version_that_it_names(client: Client, write: str) -> None:
    subject = "mm: Copy folios in batches"
    series = build_series(subject=subject, version=2)
    if "v2" in write:
        build_series(subject=subject, version=1)
    assert goes_to(client, write.format(subject)) == f"/series/{series.pk}/"


def test_subject_of_one_patch_leads_to_its_series(client: Client, reader: Reader) -> None:
    series = build_series(subject="mm: Copy folios in batches", version=3, total=9)
    for index, words in ((1, "mm: Let callers say how much"), (2, "mm: Let callers say how much more")):
        Patch.objects.filter(series=series, index=index).update(subject=words)
    assert goes_to(client, "Re: [PATCH v3 1/9] mm: Let callers say how much") == f"/series/{series.pk}/"
    assert "patch 2/9 of v3 mm: Copy folios in batches" in found(reader, "callers more")


def test_words_of_a_subject_find_series_and_commits(reader: Reader) -> None:
    series = build_series(subject="mm: Copy folios in batches")
    build_series(subject="mm: Copy pages one by one")
    build_revision(subject="mm: Copy folios backwards", foreign=False)
    build_revision(subject="mm: Copy folios as a stranger says", foreign=True)
    text = found(reader, "folios copy")
    assert f'href="/series/{series.pk}/"' in text
    assert "one by one" not in text
    assert "backwards" in text
    assert "stranger" not in text


def test_author_is_found_by_address_and_by_whole_name(reader: Reader) -> None:
    series = build_series(author_name="Bo Long", author_address="bo@example.org")
    build_finding(series, headline="Regressed somewhere.")
    assert 'href="/findings/?author=BO%40example.org"' in found(reader, "BO@example.org")
    assert f'href="/series/{series.pk}/"' in found(reader, "bo long")


def test_finding_of_virtual_machines_is_not_found_where_they_are_not_judged(
    client: Client, settings: Any, finding: Finding
) -> None:
    settings.VIRTUAL_VERDICTS = False
    Finding.objects.update(virtual=True)
    assert f"/findings/{finding.pk}/" not in client.get(address(f"finding {finding.pk}")).content.decode()


def test_whatever_is_asked_has_an_answer(reader: Reader, finding: Finding) -> None:
    assert finding.pk
    for asked in (
        "", " ", "\0", "'", '"', "%", "_", "\\", "<script>alert(1)</script>", "x" * 5000, "a b " * 500, "9" * 50, "-1",
        "http://[x@", "https://lore.kernel.org/", "@", "<>", "\u202e", "😀", "deadbeef", "finding 999999999999999999",
        "%00", "../..", "{{ 7 }}",
    ):  # fmt: skip
        text = found(reader, asked)
        assert "<script>alert" not in text, asked
        assert "<h1>" in text, asked


def test_search_asks_a_bounded_number_of_queries(
    client: Client, django_assert_max_num_queries: Callable[[int], Any]
) -> None:
    for number in range(30):
        build_series(subject=f"mm: Deadbeef {number}")
    assert Series.objects.count() == 30
    for asked in ("deadbeef", "deadbeef@x.org", "mm: deadbeef", "12"):
        with django_assert_max_num_queries(12):
            text = client.get(address(asked)).content.decode()
    assert "There are more" in client.get(address("mm: deadbeef")).content.decode()
    assert text
