"""Branches over time: what got slower and where, their heads and steps, and the course of one case."""

import math
import re
from datetime import timedelta

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.reasons import Because
from server.dashboard.trees import heat
from server.detection.models import (
    Bisection,
    ChangePoint,
    Comparison,
    Finding,
    FindingVerdict,
    MachineQuestion,
    Timeline,
    TimelinePoint,
)
from server.lab.models import Machine, Session
from server.sources.models import Branch, HeadMove, Revision
from tests.builders import (
    because,
    build_case,
    build_comparison,
    build_machine,
    build_metric,
    build_revision,
    build_trial_session,
)
from tests.dashboard.conftest import Reader
from tests.found_scenarios import moved_timeline

pytestmark = pytest.mark.django_db


@pytest.fixture
def timeline() -> Timeline:
    return moved_timeline()


@pytest.fixture
def page(timeline: Timeline) -> str:
    return f"/trees/{timeline.branch.tree.name}/branches/{timeline.branch.name}/"


def flat(text: str) -> str:
    """Without tags, and with single blanks."""
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def beside(timeline: Timeline, machine: str, uarch: str, verdict: str = "improved", **fields: object) -> Timeline:
    """Another timeline of the branch, with one point at its newest head."""
    newest = timeline.points.select_related("head__trial").order_by("-place")[0]
    host = build_machine(machine, uarch, virtual=False)
    trial = newest.head.trial
    session = trial.sessions.filter(machine=host).first() or build_trial_session(trial, host, state=Session.State.DONE)
    given = {"case": timeline.case, "metric": timeline.metric} | fields
    cell = build_comparison(session, verdict, **given)
    other = Timeline.objects.create(
        branch=timeline.branch, reference=timeline.reference, machine=host, core_type=cell.core_type, points_seen=1,
        last_place=newest.place, **given,
    )  # fmt: skip
    TimelinePoint.objects.create(
        timeline=other, head=newest.head, comparison=cell, place=newest.place, ratio=cell.ratio or 1.0,
        ratio_low=cell.ratio_low, ratio_high=cell.ratio_high,
    )  # fmt: skip
    return other


def test_branch_says_what_got_slower_lately_and_where(reader: Reader, timeline: Timeline, page: str) -> None:
    text = flat(reader.read(page))
    name = f"{timeline.branch.tree.name}/mm/unstable"
    assert f"In the last 7 days 1 change for the worse was found in {name} : 1 on zen3 ." in text
    assert "zen3 11 % slower (mm-basic/folio-copy-2m time)" in text
    assert "60 heads judged." in text


def test_what_was_withdrawn_made_nothing_slower(reader: Reader, page: str) -> None:
    Finding.objects.get().advance(Finding.State.INVALID, Because.NOISE("noise: no"))
    text = flat(reader.read(page))
    assert "nothing new was confirmed that made" in text
    assert "change made" not in text


def test_suspected_changes_are_told_apart_from_confirmed_ones(reader: Reader, page: str) -> None:
    Finding.objects.update(state=Finding.State.CANDIDATE)
    text = flat(reader.read(page))
    assert "nothing new was confirmed that made" in text
    assert "1 more is suspected and waits for fresh boots." in text


def test_branch_that_was_not_judged_lately_says_that_nothing_can_be_said(
    reader: Reader, timeline: Timeline, page: str
) -> None:
    long_ago = clock.now() - timedelta(days=30)
    timeline.branch.measured.update(observed_at=long_ago)
    Finding.objects.update(created_at=long_ago)
    assert "was judged in the last 7 days: nothing can be said of them." in flat(reader.read(page))


def test_cell_of_the_heat_map_leads_to_the_timeline_and_marks_its_open_finding(
    reader: Reader, timeline: Timeline, page: str
) -> None:
    text = reader.read(page)
    assert f'href="/timelines/{timeline.pk}/"' in text
    number = Finding.objects.get().pk
    assert f"finding {number} is open" in text
    assert f'<a class="flag" href="/findings/{number}/"' in " ".join(text.split())
    Finding.objects.update(state=Finding.State.FIXED)
    assert f"finding {number} is open" not in reader.read(page)


def test_row_that_disagrees_between_microarchitectures_is_marked(reader: Reader, timeline: Timeline, page: str) -> None:
    assert "better in some columns" not in reader.read(page)
    beside(timeline, "zen5-a", "zen5")
    text = reader.read(page)
    assert "better in some columns" in text
    assert "20 % faster" in text


def test_inconclusive_head_claims_no_direction(reader: Reader, timeline: Timeline, page: str) -> None:
    Comparison.objects.update(verdict="inconclusive")
    text = reader.read(page)
    assert "folio-copy-2m time: inconclusive" in text
    assert "1 inconclusive, by this head alone" in flat(text)


def test_branch_of_many_cases_shows_benchmarks_that_lead_to_their_cases(
    reader: Reader, timeline: Timeline, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heat, "_MOST_CASES", 1)
    other = build_case("copy-1", benchmark="other-bench")
    beside(timeline, "zen3-a", "zen3", case=other)
    text = reader.read(page)
    assert "A cell shows the largest change among its cases." in text
    assert "?benchmark=other-bench" in text
    narrowed = reader.read(f"{page}?benchmark=other-bench")
    assert "other-bench/copy-1 time" in narrowed
    assert "mm-basic/folio-copy-2m time</bdi>" not in narrowed


def test_unknown_benchmark_is_said(reader: Reader, page: str) -> None:
    text = flat(reader.read(f"{page}?benchmark=<b>nothing"))
    assert "No benchmark &lt;b&gt;nothing was measured on this branch. Known are: mm-basic" in text


def test_machine_that_lags_behind_is_stale(reader: Reader, timeline: Timeline, page: str) -> None:
    beside(timeline, "zen5-a", "zen5")
    assert "days old" not in reader.read(page)
    newest = timeline.points.select_related("head__revision").order_by("-place")[0]
    Revision.objects.filter(pk=newest.head.revision_id).update(
        committed_at=newest.head.revision.committed_at + timedelta(days=20)
    )
    Timeline.objects.filter(pk=timeline.pk).update(last_place=newest.place - 1)
    assert "20 days old" in reader.read(page)


def test_heads_tell_what_was_decided_and_what_they_showed(reader: Reader, timeline: Timeline, page: str) -> None:
    skipped = build_revision(timeline.branch.tree, subject="mm: Not worth it")
    HeadMove.objects.create(
        branch=timeline.branch, kind="advanced", after=skipped, decision="not measured: 3 in 24 hours are enough"
    )
    text = flat(reader.read(page))
    assert "Merge 160" in text
    assert "not measured: 3 in 24 hours are enough" in text
    assert "judged 1 0 0 0" in text


def test_level_changes_name_commit_and_author(reader: Reader, timeline: Timeline, page: str) -> None:
    text = reader.read(page)
    step = timeline.points.select_related("head__revision").get(place=141).head.revision
    assert step.sha[:12] in text.partition('id="changes"')[2]
    assert "zen3 ✗ 12 % slower mm-basic/folio-copy-2m time" in flat(text)


@pytest.mark.usefixtures("virtual_verdicts")
def test_timelines_of_a_virtual_machine_are_marked(reader: Reader, timeline: Timeline, page: str) -> None:
    Machine.objects.update(virtual=True)
    timeline.branch.fleets.update(virtual=True)
    assert "not evidence" in reader.read(page).lower()
    assert "not evidence" in reader.read(f"/timelines/{timeline.pk}/").lower()


def test_findings_of_virtual_machines_are_not_told_where_the_site_does_not_judge_them(
    reader: Reader, timeline: Timeline, page: str, settings: Settings
) -> None:
    Finding.objects.update(virtual=True)
    number = Finding.objects.get().pk
    for path in (page, f"/timelines/{timeline.pk}/", "/"):
        assert f"/findings/{number}/" not in reader.read(path), path
    settings.VIRTUAL_VERDICTS = True
    assert f"/findings/{number}/" in reader.read(page)


def test_branch_without_measurements_says_what_would_fill_it(reader: Reader, timeline: Timeline) -> None:
    tree = timeline.branch.tree.name
    Branch.objects.create(tree=timeline.branch.tree, name="next/akpm")
    text = reader.read(f"/trees/{tree}/branches/next/akpm/")
    assert "No head of this branch has been judged yet." in text
    assert f"manage.py fetch_tree {tree}" in text


def test_deleted_branch_keeps_its_page(reader: Reader, timeline: Timeline, page: str) -> None:
    Branch.objects.update(deleted_at=clock.now())
    text = reader.read(page)
    assert "The remote deleted this branch" in text
    assert f'href="/timelines/{timeline.pk}/"' in text


@pytest.mark.parametrize("path", ["/trees/none/branches/master/", "/timelines/999999/"])
def test_what_is_not_there_is_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


def test_timeline_lists_heads_with_their_commits_newest_first(reader: Reader, timeline: Timeline) -> None:
    text = reader.read(f"/timelines/{timeline.pk}/")
    assert "slower than the reference" in text
    table = text.partition('id="points"')[2]
    assert table.index("Merge 160") < table.index("Merge 159")
    assert "Ada Author" in table


def test_older_heads_of_a_timeline_stand_on_its_next_pages(reader: Reader, timeline: Timeline) -> None:
    first = reader.read(f"/timelines/{timeline.pk}/").partition('id="points"')[2]
    second = reader.read(f"/timelines/{timeline.pk}/?page=2").partition('id="points"')[2]
    shown = [set(re.findall(r"Merge \d+", text)) for text in (first, second)]
    assert all(shown)
    assert shown[0].isdisjoint(shown[1])
    assert 'href="?page=2"' in first
    assert "Merge 160" in reader.read(f"/timelines/{timeline.pk}/?page=none")


def test_script_of_a_timeline_asks_for_what_it_draws(client: Client, timeline: Timeline) -> None:
    address = f"/timelines/{timeline.pk}/course/"
    assert f'data-source="{address}"' in client.get(f"/timelines/{timeline.pk}/").content.decode()
    data = client.get(address).json()
    assert data["places"][-1] == 160
    assert len(data["lanes"][0]["speeds"]) == len(data["places"]) == len(data["by"])
    assert data["lanes"][0]["steps"][0][0] == 141
    assert client.get("/timelines/999999/course/").status_code == 404


def test_timeline_shows_all_machines_of_its_case(reader: Reader, timeline: Timeline) -> None:
    other = beside(timeline, "zen5-a", "zen5")
    for one in (timeline, other):
        text = reader.read(f"/timelines/{one.pk}/")
        assert "zen3 (zen3-a)" in text
        assert "zen5 (zen5-a)" in text
        assert "not measured" in text


def test_timeline_of_another_case_has_no_lane_here(reader: Reader, timeline: Timeline) -> None:
    beside(timeline, "zen5-a", "zen5", metric=build_metric("zz-last"))
    assert "zen5-a" not in reader.read(f"/timelines/{timeline.pk}/")


def test_steps_of_a_timeline_have_their_commits_and_findings(reader: Reader, timeline: Timeline) -> None:
    text = reader.read(f"/timelines/{timeline.pk}/")
    steps = text.partition('id="steps"')[2].partition('id="points"')[0]
    assert timeline.points.get(place=141).head.revision.sha in steps
    assert timeline.points.get(place=140).head.revision.sha in steps
    assert "12 % slower" in steps
    assert f'href="/findings/{Finding.objects.get().pk}/"' in steps


def test_step_that_was_taken_back_is_drawn_as_a_change_no_more(reader: Reader, timeline: Timeline) -> None:
    path = f"/timelines/{timeline.pk}/"
    assert "from here on" in reader.read(path)
    ChangePoint.objects.update(state=ChangePoint.State.WITHDRAWN)
    text = reader.read(path)
    assert "from here on" not in text
    assert "withdrawn" in text


def test_events_of_a_machine_stand_on_its_lane(reader: Reader, timeline: Timeline) -> None:
    MachineQuestion.objects.update(branch=timeline.branch, place=151)
    assert "38 of 40 timelines moved at 151" in reader.read(f"/timelines/{timeline.pk}/")


def test_value_that_cannot_be_drawn_breaks_no_page(reader: Reader, timeline: Timeline, page: str) -> None:
    TimelinePoint.objects.filter(place=160).update(ratio=math.inf, ratio_low=None, ratio_high=None)
    TimelinePoint.objects.filter(place=159).update(ratio=0.0)
    reader.read(f"/timelines/{timeline.pk}/")
    reader.read(page)


def test_tree_leads_to_its_branches(reader: Reader, timeline: Timeline, page: str) -> None:
    assert f'href="{page}"' in reader.read(f"/trees/{timeline.branch.tree.name}/")


def test_reason_of_a_finding_is_no_markup(reader: Reader, page: str) -> None:
    Finding.objects.get().advance(Finding.State.INVALID, because("<script>alert(1)</script>"))
    assert "<script>alert" not in reader.read(page)


def test_one_commit_that_two_findings_tell_of_counts_once(reader: Reader, timeline: Timeline, page: str) -> None:
    first = Finding.objects.get()
    cell = first.verdicts.get().comparison
    heads = [timeline.points.get(place=place).head.revision for place in (110, 150)]
    other = Finding.objects.create(
        branch=timeline.branch, before=heads[0], after=heads[1], kind="regressed", state="confirmed", virtual=False,
        headline="Regressed on zen3.", culprit=first.after, trace="e" * 16,
    ).record_creation()  # fmt: skip
    FindingVerdict.objects.create(finding=other, uarch=timeline.machine.uarch, verdict="regressed", comparison=cell)
    assert "2 changes for the worse were found" in flat(reader.read(page))
    assert cell is not None
    Bisection.objects.create(
        finding=first, machine=timeline.machine, target=cell, revisions=["a" * 40, "b" * 40], low=0, high=1, effect=0.1,
        state="found", culprit=first.after,
    )  # fmt: skip
    text = flat(reader.read(page))
    assert "1 change for the worse was found" in text
    assert f"same commit as finding {first.pk}" in text


def test_finding_of_several_commits_is_titled_by_them(reader: Reader, timeline: Timeline) -> None:
    finding = Finding.objects.get()
    cell = finding.verdicts.get().comparison
    assert cell is not None
    Bisection.objects.create(
        finding=finding, machine=timeline.machine, target=cell, revisions=["a" * 40, "b" * 40], low=0, high=1,
        effect=0.1, state="found", culprit=build_revision(timeline.reference.tree, subject="mm: First of two"),
    )  # fmt: skip
    text = flat(reader.read("/"))
    assert "mm: First of two (zen3)" in text
    assert "at the latest" not in text


def test_two_kernels_are_compared_from_the_top_of_a_branch(reader: Reader, timeline: Timeline, page: str) -> None:
    text = reader.read(page)
    newest = timeline.points.order_by("-place")[0].head.revision.sha
    link = f"/compare/?base={timeline.reference.sha}&amp;patched={newest}"
    assert text.index(link) < text.index('class="heat')


@pytest.mark.parametrize("where", ["home", "tree", "branch"])
def test_what_a_page_with_a_table_does_not_know_is_said(
    reader: Reader, timeline: Timeline, page: str, where: str
) -> None:
    path = {"home": "/", "tree": f"/trees/{timeline.branch.tree.name}/", "branch": page}[where]
    assert "This page has no format xml. Known: csv." in flat(reader.read(f"{path}?format=xml"))
    text = flat(reader.read(f"{path}?effect=<b>0.05&format="))
    assert "This page has no parameter effect. Known: " in text
    assert "no format" not in text
    assert "This page has no" not in reader.read(path)


def test_step_that_fresh_boots_placed_elsewhere_is_drawn_where_its_finding_says(
    reader: Reader, timeline: Timeline, page: str
) -> None:
    finding, machine = Finding.objects.get(), timeline.machine
    newest = timeline.points.select_related("head__trial").order_by("-place")[0]
    session = newest.head.trial.sessions.get(machine=machine)
    Comparison.objects.filter(session=session).update(ratio=1.25)
    Finding.objects.update(trial=newest.head.trial)
    ChangePoint.objects.update(place=138, before_place=137, first_place=138)
    ChangePoint.objects.create(
        timeline=timeline, first_place=139, place=139, before_place=138, effect=math.log(1.05), score=9.0,
        state="settled", finding=finding,
    )  # fmt: skip
    assert finding.after is not None
    for path, step in ((f"/timelines/{timeline.pk}/", 'id="steps"'), (page, 'id="changes"')):
        shown = reader.read(path).partition(step)[2].partition("</section>")[0]
        assert finding.after.sha[:12] in shown, path
        assert "25 % slower" in shown, path
        assert shown.count("% slower") == 1, path
    assert "place and size by the fresh boots of the finding" in reader.read(f"/timelines/{timeline.pk}/")
    Finding.objects.update(state=Finding.State.CANDIDATE)
    shown = reader.read(page).partition('id="changes"')[2].partition("</section>")[0]
    assert finding.after.sha not in shown
    assert "25 % slower" not in shown
