"""The home page: what got slower and where, open findings, what runs, what needs a person."""

import re
from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.detection.models import Finding
from server.lab.models import Session
from server.sources.models import MailingList, Series, Tree
from tests.builders import (
    because,
    build_comparison,
    build_finding,
    build_list,
    build_machine,
    build_series,
    build_session,
    build_tree,
)
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline, split_finding
from tests.scenarios import busy_site, erms_regression

pytestmark = pytest.mark.django_db


def flat(text: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_empty_site_says_what_it_has_not_and_what_would_fill_it(reader: Reader) -> None:
    text = reader.read("/")
    for sentence in (
        "No head of any tree has been judged yet.",
        "manage.py load_trees",
        "No finding is open.",
        "manage.py import_mail",
        "Nothing runs, and nothing waits.",
        "No machine is registered yet.",
        "No tree and no list is watched yet.",
    ):
        assert sentence in " ".join(text.split()), sentence


def test_home_tells_findings_of_branches_beside_those_of_series(reader: Reader) -> None:
    timeline, finding = moved_timeline(), split_finding()
    text = reader.read("/")
    branch = Finding.objects.get(branch__isnull=False)
    assert f'href="/findings/{branch.pk}/"' in text
    assert f'href="/series/{finding.series_id}/"' in text
    assert text.index("finding " + str(finding.pk)) < text.rindex("finding " + str(branch.pk))
    assert f'href="/timelines/{timeline.pk}/"' in text
    assert "11 % slower" in flat(text)


@pytest.mark.usefixtures("virtual_verdicts")
def test_open_finding_shows_a_verdict_for_each_microarchitecture(reader: Reader) -> None:
    series = erms_regression()
    text = reader.read("/")
    assert f'href="/series/{series.pk}/"' in text
    assert "x86/mm: Clear pages twice with ERMS" in text
    assert text.count('class="chip regressed"') == 2
    assert text.count('class="chip unchanged"') == 2
    assert "would have seen" in text
    assert "virtual, not evidence" in text


def test_virtual_findings_stay_away_where_they_are_no_evidence(reader: Reader, settings: Settings) -> None:
    moved_timeline()
    number = Finding.objects.get().pk
    Finding.objects.update(virtual=True)
    assert f"finding {number}<" not in reader.read("/")
    settings.VIRTUAL_VERDICTS = True
    assert f"finding {number}<" in reader.read("/")


def test_findings_that_are_over_are_open_no_more(reader: Reader) -> None:
    finding = split_finding()
    assert f"finding {finding.pk}" in reader.read("/")
    Finding.objects.get(pk=finding.pk).advance(Finding.State.ACCEPTED, because("known"))
    assert f"finding {finding.pk}" not in reader.read("/")


def test_series_that_showed_nothing_is_no_open_finding(reader: Reader) -> None:
    series = build_series(subject="mm: Cost nothing")
    build_comparison(build_session(series, build_machine("z3", "zen3"), state=Session.State.DONE), "unchanged")
    build_finding(series, Finding.Kind.UNCHANGED)
    text = reader.read("/")
    assert "No finding is open." in text
    assert "mm: Cost nothing" in text


def test_worst_findings_come_first_where_asked(reader: Reader) -> None:
    worst = split_finding()
    moved_timeline()
    mild = Finding.objects.get(branch__isnull=False)
    found = reader.read("/").partition('id="open"')[2]
    assert found.index(f"finding {mild.pk}<") < found.index(f"finding {worst.pk}<")
    found = reader.read("/?order=worst").partition('id="open"')[2]
    assert found.index(f"finding {worst.pk}<") < found.index(f"finding {mild.pk}<")


def test_worst_is_found_among_all_that_are_open(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    worst = split_finding()
    for _ in range(20):
        build_finding(build_series(), "regressed")
    Finding.objects.update(virtual=False, state=Finding.State.CONFIRMED)
    found = reader.read("/?order=worst").partition('id="open"')[2]
    assert f"finding {worst.pk}<" in found
    assert "The worst of the newest" not in found
    monkeypatch.setattr("server.dashboard.home_page._MOST_ORDERED", 20)
    assert "The worst of the newest 20." in reader.read("/?order=worst")


def test_findings_of_the_last_days_that_are_cut_are_said(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = moved_timeline()
    branch = timeline.branch
    pages = ("/", f"/trees/{branch.tree.name}/", f"/trees/{branch.tree.name}/branches/{branch.name}/")
    for page in pages:
        assert "there may be more" not in reader.read(page)
    monkeypatch.setattr("server.dashboard.home_page._MOST_LATELY", 1)
    monkeypatch.setattr("server.dashboard.tree_pages._MOST_FINDINGS", 1)
    for page in pages:
        assert "Only the newest findings were looked at: there may be more." in reader.read(page)


def test_unknown_names_in_the_address_are_said(reader: Reader) -> None:
    moved_timeline()
    text = reader.read("/?tree=<i>none&order=loudest")
    assert "No branch &lt;i&gt;none has judged heads here; shown is" in text
    assert "There is no order loudest; known are newest and worst." in " ".join(text.split())


def test_chosen_branch_is_shown(reader: Reader) -> None:
    first, second = moved_timeline(), moved_timeline("mm")
    assert first.branch.tree != second.branch.tree
    for timeline in (first, second):
        text = reader.read(f"/?tree={timeline.branch.tree.name}/{timeline.branch.name}")
        assert f'href="/timelines/{timeline.pk}/"' in text


@pytest.mark.usefixtures("virtual_verdicts")
def test_home_tells_what_runs_and_how_far_it_is(reader: Reader) -> None:
    busy_site()
    text = flat(reader.read("/"))
    assert "of 4 boots" in text
    assert "mm: Batch the zeroing of folios" in text


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


def test_failing_watcher_says_why_and_what_to_do(reader: Reader) -> None:
    now = clock.now()
    build_tree(
        "mm", polled_at=now, failing_since=now - timedelta(hours=5), failures=7, last_error="fatal: no route to host"
    )
    text = reader.read("/")
    assert "The tree mm is failing: fatal: no route to host" in text
    assert "Check its address and the network." in text
    Tree.objects.update(last_error="fatal: " + "word " * 100)
    assert "word " * 80 not in reader.read("/")
    assert "word " * 80 in reader.read("/status/")


def test_watcher_that_was_never_polled_is_not_called_slow(reader: Reader) -> None:
    build_tree("mm")
    text = reader.read("/")
    assert "The tree mm is not polled yet." in text
    assert "longer than its interval" not in text


def test_watcher_that_stopped_without_an_error_is_late(reader: Reader) -> None:
    build_list(polled_at=clock.now() - timedelta(minutes=7))
    assert "no poll for longer than its interval allows" in reader.read("/")
    MailingList.objects.update(polled_at=clock.now())
    Tree.objects.update(polled_at=clock.now())
    assert "no poll for longer than its interval allows" not in reader.read("/")


def test_many_silent_watchers_are_one_line(reader: Reader) -> None:
    for number in range(7):
        build_tree(f"tree-{number}")
    text = reader.read("/")
    assert "7 trees and lists (tree-0, tree-1, tree-2, tree-3, tree-4, ...) are not polled yet." in text
    assert text.count("Check that the workers run.") == 1


def test_quarantined_machine_says_why_and_what_to_do(reader: Reader) -> None:
    build_machine("bench-1", health="quarantined", health_reason="three boots lost in a row")
    text = reader.read("/")
    assert "Machine bench-1 gets no work, it is quarantined: three boots lost in a row." in text
    assert 'href="/machines/bench-1/">Look at it, then release it.' in text


def test_offline_machine_is_not_at_work_and_is_told(reader: Reader) -> None:
    build_machine("bench-1", state="offline", state_reason="no answer for ten minutes")
    build_machine("bench-2", state="offline", enabled=False)
    build_machine("bench-3", state="offline", health="maintenance")
    build_machine("bench-4")
    text = reader.read("/")
    assert "Machine bench-1 is offline: no answer for ten minutes." in text
    assert "3 machines : 0 at work, 1 idle, 2 out of work: offline or not in good health ." in flat(text)
    assert "bench-2" not in text
    assert "bench-3 is offline" not in text
    build_machine("bench-5", state="offline")
    assert "2 machines (bench-1, bench-5) are offline." in reader.read("/")


def test_counters_show_what_waits(reader: Reader) -> None:
    build_series(state=Series.State.HELD)
    build_series(state=Series.State.HELD)
    assert 'held&nbsp;<span class="figure">2</span>' in reader.read("/")
