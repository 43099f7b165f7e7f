"""The home page: findings, series under way, machines, watchers."""

from datetime import timedelta

import pytest

from server.core import clock
from server.sources.models import MailingList, Series, Tree
from tests.builders import build_list, build_machine, build_series, build_tree
from tests.dashboard.conftest import Reader
from tests.scenarios import busy_site, erms_regression

pytestmark = pytest.mark.django_db


def test_empty_site_says_what_it_has_not(reader: Reader) -> None:
    text = reader.read("/")
    for sentence in (
        "Nothing has been judged yet.",
        "No series is under way.",
        "No machine is registered yet.",
        "No tree and no list is watched yet.",
    ):
        assert sentence in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_latest_finding_shows_a_verdict_for_each_microarchitecture(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read("/")
    assert f'<a href="/series/{series.pk}/">x86/mm: Clear pages twice with ERMS</a>' in text
    assert text.count('class="chip regressed"') == 2
    assert text.count('class="chip unchanged"') == 2
    assert "would have seen" in text
    assert "virtual, not evidence" in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_series_under_way_say_at_which_stage_they_are(reader: Reader) -> None:
    busy_site()
    text = reader.read("/")
    assert "sender is not on the list of trusted senders" in text
    assert "make bzImage ended with 2" in text
    assert "0 of 2 machines, 1 of 8 boots measured" in text


def test_series_at_work_are_not_hidden_by_held_ones(reader: Reader) -> None:
    build_series(subject="mm: Add folio_frob()", state=Series.State.READY, reason="looking for its base")
    for number in range(21):
        build_series(subject=f"mm: Wait {number}", state=Series.State.HELD, checked_at=clock.now())
    assert "folio_frob" in reader.read("/")


def test_failed_series_leaves_the_home_page_after_some_days(reader: Reader) -> None:
    series = build_series(subject="mm: Add folio_frob()", state=Series.State.REFUSED, reason="does not apply")
    assert "folio_frob" in reader.read("/")
    Series.objects.filter(pk=series.pk).update(state_since=clock.now() - timedelta(days=8))
    assert "folio_frob" not in reader.read("/")


def test_failing_watcher_says_since_when_and_why(reader: Reader) -> None:
    now = clock.now()
    build_tree(
        "mm", polled_at=now, failing_since=now - timedelta(hours=5), failures=7, last_error="fatal: no route to host"
    )
    text = reader.read("/")
    assert "failing" in text
    assert "fatal: no route to host" in text
    Tree.objects.update(last_error="fatal: " + "word " * 100)
    assert "word " * 80 not in reader.read("/")
    assert "word " * 80 in reader.read("/status/")


def test_watcher_that_was_never_polled_is_not_called_slow(reader: Reader) -> None:
    build_tree("mm")
    text = reader.read("/")
    assert "not polled yet" in text
    assert "longer than its interval" not in text


def test_watcher_that_stopped_without_an_error_is_late(reader: Reader) -> None:
    build_list(polled_at=clock.now() - timedelta(minutes=7))
    assert "no poll for longer than its interval allows" in reader.read("/")
    MailingList.objects.update(polled_at=clock.now())
    Tree.objects.update(polled_at=clock.now())
    assert "no poll for longer than its interval allows" not in reader.read("/")


def test_quarantined_machine_says_why(reader: Reader) -> None:
    build_machine("bench-1", health="quarantined", health_reason="three boots lost in a row")
    text = reader.read("/")
    assert "quarantined" in text
    assert "three boots lost in a row" in text


def test_counters_show_what_waits(reader: Reader) -> None:
    build_series(state=Series.State.HELD)
    build_series(state=Series.State.HELD)
    assert 'held&nbsp;<span class="figure">2</span>' in reader.read("/")
