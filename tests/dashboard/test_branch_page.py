"""Branches over time: their findings, their timelines, and one timeline drawn."""

import math

import pytest

from server.dashboard import tree_pages
from server.dashboard.rows.charts import HEIGHT, spark
from server.detection.models import ChangePoint, MeasuredHead, Timeline, TimelinePoint
from server.lab.models import Machine, Trial
from server.sources.models import Branch
from tests.builders import build_comparison, build_machine, build_metric, build_revision, build_series, build_session
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


@pytest.fixture
def timeline() -> Timeline:
    series = build_series()
    assert series.base is not None
    machine = build_machine("z3", "zen3", virtual=False)
    branch = series.base.tree.branches.create(name="master")
    first = build_comparison(build_session(series, machine))
    timeline = Timeline.objects.create(
        branch=branch, reference=series.base, machine=machine, case=first.case, metric=first.metric,
        core_type=first.core_type, points_seen=2,
    )  # fmt: skip
    for place, comparison in ((7, first), (9, build_comparison(build_session(build_series(), machine)))):
        revision = build_revision(subject=f"mm: Revision at {place}")
        trial = Trial.objects.create(
            key=f"head:{place}", purpose="head", base=series.base, patched=revision, looks=[3], state="done"
        )
        head = MeasuredHead.objects.create(
            branch=branch, reference=series.base, revision=revision, place=place, trial=trial
        )
        TimelinePoint.objects.create(
            timeline=timeline, head=head, comparison=comparison, place=place, ratio=1.0 + place / 100
        )
    ChangePoint.objects.create(
        timeline=timeline, first_place=9, place=9, before_place=7, effect=math.log(1.25), score=6.0, state="suspect"
    )
    return timeline


def test_branch_lists_its_timelines_with_where_they_changed(reader: Reader, timeline: Timeline) -> None:
    text = reader.read(f"/trees/{timeline.branch.tree.name}/branches/master/")
    assert f'href="/timelines/{timeline.pk}/"' in text
    assert "1.090x" in text
    assert "1.250x" in text
    assert "suspect" in text
    assert "Timelines on z3 (zen3)" in text


def test_many_timelines_come_page_by_page(reader: Reader, timeline: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_pages, "_TIMELINES_PER_PAGE", 1)
    other = Timeline.objects.get(pk=timeline.pk)
    other.pk = None
    other.metric = build_metric("zz-last")
    other.save()
    path = f"/trees/{timeline.branch.tree.name}/branches/master/"
    first, last = reader.read(path), reader.read(f"{path}?machine=z3&timelines=2")
    assert f'href="/timelines/{timeline.pk}/"' in first
    assert f'href="/timelines/{other.pk}/"' not in first
    assert 'href="?machine=z3&amp;timelines=2#timelines">next</a>' in first
    assert f'href="/timelines/{other.pk}/"' in last
    assert 'href="?machine=z3&amp;timelines=1#timelines">previous</a>' in last


@pytest.mark.usefixtures("virtual_verdicts")
def test_timelines_of_a_virtual_machine_are_marked(reader: Reader, timeline: Timeline) -> None:
    Machine.objects.update(virtual=True)
    mark = "not evidence"
    assert mark in reader.read(f"/trees/{timeline.branch.tree.name}/branches/master/").lower()
    assert mark in reader.read(f"/timelines/{timeline.pk}/").lower()


def test_branch_without_measurements_says_so(reader: Reader, timeline: Timeline) -> None:
    Branch.objects.create(tree=timeline.branch.tree, name="next/akpm")
    text = reader.read(f"/trees/{timeline.branch.tree.name}/branches/next/akpm/")
    assert "No head of this branch has been measured yet." in text


@pytest.mark.parametrize("path", ["/trees/none/branches/master/", "/timelines/999999/"])
def test_what_is_not_there_is_not_found(reader: Reader, path: str) -> None:
    assert "404" in reader.read(path, status=404)


def test_timeline_draws_its_points_and_lists_them_newest_first(reader: Reader, timeline: Timeline) -> None:
    text = reader.read(f"/timelines/{timeline.pk}/")
    assert "<polyline" in text
    assert text.index("1.090x") < text.index("1.070x")


def test_step_that_was_taken_back_is_drawn_as_a_change_no_more(reader: Reader, timeline: Timeline) -> None:
    path = f"/timelines/{timeline.pk}/"
    assert 'class="step"' in reader.read(path)
    ChangePoint.objects.update(state=ChangePoint.State.WITHDRAWN)
    text = reader.read(path)
    assert 'class="step"' not in text
    assert "withdrawn" in text


def test_tree_leads_to_its_branches(reader: Reader, timeline: Timeline) -> None:
    name = timeline.branch.tree.name
    assert f'href="/trees/{name}/branches/master/"' in reader.read(f"/trees/{name}/")


def test_quiet_timeline_is_drawn_flat() -> None:
    drawn = spark([1, 2, 3], [1.0, 1.001, 0.999], [])
    assert drawn is not None
    heights = [float(point.split(",")[1]) for point in drawn.line.split()]
    assert max(heights) - min(heights) < HEIGHT / 10


def test_one_point_is_no_line() -> None:
    assert spark([1], [1.0], []) is None
