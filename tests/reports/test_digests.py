"""What a tree came to in a week."""

from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.detection.models import Finding
from server.reports.writing import digest_for
from server.sources.models import Tree
from tests.builders import build_tree
from tests.reports.tellable import news, told, version, withdraw

pytestmark = pytest.mark.django_db
UP, SAME = "regressed", "unchanged"


@pytest.fixture(autouse=True)
def open_site(settings: Settings) -> None:
    settings.MAIL_ENABLED = True
    settings.MAIL_SINK = ""


def digest(tree: Tree | None = None, days: int = 7) -> str:
    until = clock.now() + timedelta(minutes=1)
    text = digest_for(tree or build_tree(), until - timedelta(days=days), until)
    return text.body if text else ""


def test_week_in_which_nothing_happened_has_no_digest() -> None:
    version({"zen3": {"fork": SAME}})
    old = version({"zen3": {"fork": UP}})
    month_ago = clock.now() - timedelta(days=30)
    Finding.objects.filter(pk=old.pk).update(created_at=month_ago, state_since=month_ago)
    assert digest() == ""
    assert digest(days=60)


def test_digest_names_what_regressed_in_the_tree_and_in_no_other() -> None:
    finding = version({"zen3": {"fork": UP}})
    assert f"/series/{finding.series_id}/" in digest()
    assert digest(build_tree("other")) == ""


def test_virtual_findings_are_in_no_digest() -> None:
    finding = version({"zen3": {"fork": UP}})
    Finding.objects.filter(pk=finding.pk).update(virtual=True)
    assert digest() == ""


def test_what_was_told_and_withdrawn_is_news_and_what_was_not_told_is_none() -> None:
    finding, untold = version({"zen3": {"fork": UP}}), version({"zen3": {"fork": UP}})
    told(finding)
    for one in (finding, untold):
        withdraw(one)
        news(one)
    body = digest()
    assert f"/series/{finding.series_id}/" in body
    assert f"/series/{untold.series_id}/" not in body
