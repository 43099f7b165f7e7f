"""The pictures as what they are made of: where a mark stands, what it says, and that names stay text."""

import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest
from django.template.loader import render_to_string

from server.dashboard.pictures import axis, samples
from server.dashboard.pictures.axis import RatioAxis
from server.dashboard.pictures.course import (
    MOST_POINTS,
    Course,
    CourseEvent,
    CourseFlag,
    CourseHead,
    CourseLane,
    CoursePoint,
    CourseStep,
    thinned,
)
from server.dashboard.pictures.fingerprint import Absent, Column, Dot, Fingerprint, Group, Line, svg_of
from server.dashboard.pictures.heat_map import Heat, HeatMap, HeatRow
from server.dashboard.pictures.small import (
    Flight,
    Narrowing,
    NarrowingStep,
    Night,
    NoiseCourse,
    QueueBar,
    QueueBars,
    Staircase,
    Tread,
)

_NOW = datetime(2026, 11, 29, 10, 40, tzinfo=UTC)


def dot(ratio: float, low: float | None = None, high: float | None = None, **more: str) -> Dot:
    values = {"better": "lower", "verdict": "regressed", "said": "said", "href": ""} | more
    return Dot(ratio, low, high, values["better"], values["verdict"], values["said"], values["href"])


def fingerprint(*cells: Dot | Absent, title: str = "", label: str = "case", is_open: bool = True) -> Fingerprint:
    columns = tuple(Column(f"u{n}", f"uarch{n}") for n in range(len(cells)))
    return Fingerprint(columns, (Group(title, (Line(label, "about", cells),), is_open),), 0.02)


def html(kind: str, picture: object) -> str:
    return render_to_string(f"dashboard/pictures/{kind}.html", {"picture": picture})


# --- the axis ---


@pytest.mark.parametrize(("better", "ratio"), [("lower", 0.5), ("higher", 2.0)])
def test_better_is_right_whatever_the_direction_of_the_metric(better: str, ratio: float) -> None:
    size = axis.speed(ratio, better)
    assert size is not None
    assert RatioAxis(4.0, 0.02).at(size) == 75


def test_half_and_twice_are_equally_far_from_the_middle() -> None:
    scale = RatioAxis(3.0, 0.02)
    assert scale.at(math.log(2)) - 50 == pytest.approx(50 - scale.at(-math.log(2)), abs=0.01)
    assert scale.at(0) == 50


def test_axis_is_never_narrower_than_two_and_a_half_percent() -> None:
    assert RatioAxis.around([0.001], 0.001).edge == 1.025
    assert RatioAxis.around([], 0).edge == 1.025


def test_axis_shows_the_whole_band_of_the_minimum_effect() -> None:
    scale = RatioAxis.around([0.0], 0.05)
    left, width = scale.band
    assert 0 < left < 50
    assert left + width / 2 == pytest.approx(50, abs=0.01)


def test_ticks_mirror_each_other() -> None:
    ticks = RatioAxis(2.0, 0.02).ticks
    assert [tick.label for tick in ticks] == [tick.label for tick in reversed(ticks)]
    assert [tick.label for tick in ticks] == ["2x", "1.4x", "1", "1.4x", "2x"]
    assert ticks[0].at == 0
    assert ticks[-1].at == 100


def test_interval_beyond_the_edge_ends_there_with_an_arrow() -> None:
    drawn = RatioAxis(2.0, 0.02).interval(0.9, 5.0, "lower")
    assert drawn is not None
    assert (drawn.low, drawn.arrow_low, drawn.arrow_high) == (0, True, False)
    assert drawn.high == pytest.approx(50 + 50 * math.log(1 / 0.9) / math.log(2), abs=0.01)


@pytest.mark.parametrize("ends", [(None, 1.1), (0.9, None), (math.nan, 1.0)])
def test_interval_without_both_ends_is_not_drawn(ends: tuple[float | None, float | None]) -> None:
    assert RatioAxis(2.0, 0.02).interval(*ends, "lower") is None


def test_interval_down_to_zero_leaves_the_axis() -> None:
    drawn = RatioAxis(2.0, 0.02).interval(0.0, math.inf, "higher")
    assert drawn is not None
    assert (drawn.low, drawn.high, drawn.arrow_low, drawn.arrow_high) == (0, 100, True, True)


@pytest.mark.parametrize(
    ("ratio", "better", "words"),
    [
        (1.41, "lower", "41 % slower"),
        (1.71, "lower", "1.71x slower"),
        (0.5, "lower", "2.00x faster"),
        (2.0, "higher", "2.00x faster"),
        (0.95, "higher", "5.0 % slower"),
        (1.0, "lower", "0.0 %"),
        (300.0, "lower", "300x slower"),
        (0.0, "lower", "no ratio"),
        (math.nan, "lower", "no ratio"),
    ],
)
def test_changes_are_told_as_faster_and_slower(ratio: float, better: str, words: str) -> None:
    assert axis.told(ratio, better) == words


# --- the fingerprint ---


def test_worse_and_better_differ_in_side_shape_and_word() -> None:
    made = fingerprint(dot(2.0, 1.9, 2.1), dot(0.5, 0.48, 0.52, verdict="improved"))
    worse, better = made.drawn[0].lines[0].cells
    assert '<path d="M-6 0' in worse.svg
    assert '<path d="M6 0' in better.svg
    assert "2.00x slower" in worse.svg
    assert ">2.00x</text>" in worse.svg
    assert "2.00x faster" in better.svg


def test_inconclusive_is_hollow_and_claims_no_size() -> None:
    (cell,) = fingerprint(dot(1.3, 0.9, 1.8, verdict="inconclusive")).drawn[0].lines[0].cells
    assert 'class="hollow"' in cell.svg
    assert "slower" not in cell.svg


def test_absent_cell_is_empty_and_says_why() -> None:
    made = fingerprint(Absent("no huge pages there"), dot(1.0, verdict="unchanged"))
    assert made.drawn[0].lines[0].cells[0].svg == ""
    assert "no huge pages there" in html("fingerprint", made)


def test_ratio_that_is_none_leaves_its_cell_empty() -> None:
    made = fingerprint(dot(0.0, said="a value of zero"), dot(math.nan, said="no number"))
    assert [cell.verdict for cell in made.drawn[0].lines[0].cells] == ["absent", "absent"]
    assert made.axis.edge == 1.025


def test_point_beyond_the_largest_edge_stands_at_it() -> None:
    (cell,) = fingerprint(dot(300.0)).drawn[0].lines[0].cells
    assert '<svg x="0.0%"' in cell.svg
    assert "300x slower" in cell.svg


def test_lines_and_columns_keep_their_order() -> None:
    lines = tuple(Line(name, "", (dot(1.0), dot(1.0))) for name in ("zeta", "alpha"))
    made = Fingerprint((Column("b", "bbb"), Column("a", "aaa")), (Group("g", lines),), 0.02)
    page = html("fingerprint", made)
    assert page.index("zeta") < page.index("alpha")
    assert page.index("bbb") < page.index("aaa")


def test_group_folds_to_median_and_range() -> None:
    lines = tuple(Line(str(n), "", (dot(ratio),)) for n, ratio in enumerate((1.1, 1.5, 2.0)))
    made = Fingerprint((Column("a", "a"),), (Group("g", lines, is_open=False),), 0.02)
    (summary,) = made.drawn[0].summary
    assert summary.said == "median of 3: 1.50x slower; from 2.00x slower to 1.10x slower"
    page = html("fingerprint", made)
    assert 'type="checkbox"' in page
    assert "checked" not in page


def test_group_in_which_a_column_goes_both_ways_is_split() -> None:
    lines = (Line("1", "", (dot(1.5),)), Line("2", "", (dot(0.5, verdict="improved"),)))
    made = Fingerprint((Column("a", "a"),), (Group("g", lines),), 0.02)
    assert made.drawn[0].summary[0].verdict == "split"


def test_unshown_lines_are_counted() -> None:
    assert "3 more lines not shown" in html("fingerprint", replace(fingerprint(dot(1.1)), unshown=3))


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_names_stay_text_in_pages_and_images(name: str) -> None:
    made = fingerprint(dot(1.5, said=name), Absent(name), title=name, label=name)
    made = replace(made, columns=(Column("a", name, name), Column("b", name)))
    page = html("fingerprint", made)
    assert "<script>" not in page
    assert "</td></table>" not in page.replace("</td></tr></table>", "")
    image = svg_of(made)
    texts = [text for element in ET.fromstring(image).iter() for text in [element.text or ""]]  # noqa: S314
    assert "script" not in {element.tag.rpartition("}")[2] for element in ET.fromstring(image).iter()}  # noqa: S314
    assert not any("\u202e" in text for text in texts)


def test_image_shows_what_is_open_and_of_the_rest_the_summary() -> None:
    image = svg_of(samples.founding())
    assert image.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert "prefers-color-scheme:dark" in image
    assert image.count("1M cold") == 2
    assert "folio_copy 0→0 (5)" in image
    assert "✗ regressed" in image


# --- the heat map ---


def test_heat_grows_with_the_effect_on_its_own_side() -> None:
    def strength(change: float) -> str:
        return Heat(change, "improved" if change > 0 else "regressed", "").classes

    assert [strength(change) for change in (-0.7, -0.01, 0.01, 0.7)] == [
        "regressed w4",
        "regressed w0",
        "improved b0",
        "improved b4",
    ]


@pytest.mark.parametrize("verdict", ["inconclusive", "unchanged"])
def test_heat_that_claims_nothing_has_neither_colour_nor_size(verdict: str) -> None:
    cell = Heat(-0.5, verdict, "said")
    assert cell.classes == verdict
    assert "slower" not in cell.text


def test_heat_says_age_and_finding() -> None:
    cell = Heat(-0.5, "regressed", "1.65x slower", stale_days=12, finding=4, split=True)
    assert cell.classes == "regressed w4 stale open both"
    assert cell.told == "1.65x slower; stale: 12 days old; finding 4 is open"


def test_heat_map_marks_rows_that_disagree_and_leaves_unmeasured_cells_empty() -> None:
    cells = (Heat(-0.5, "regressed", "slower", "/timelines/1/"), Heat(0.5, "improved", "faster"), None)
    columns = tuple(Column(str(n), f"u{n}") for n in range(3))
    page = html("heat_map", HeatMap(columns, (HeatRow("folio", "", cells, disagrees=True),), "mm"))
    assert 'class="disagrees"' in page
    assert "better in some columns, worse in others" in page
    assert '<a href="/timelines/1/" title="slower">✗ 1.65x slower</a>' in page
    assert "<td></td>" in page


def test_crowded_heat_map_shows_signs_alone() -> None:
    page = html("heat_map", samples.heat(60, 3))
    assert re.search(r">✗</a>", page)
    assert not re.search(r">✗ \d", page)


# --- the course ---


def point(place: int, ratio: float, low: float | None = None, high: float | None = None) -> CoursePoint:
    return CoursePoint(place, ratio, low, high)


def course(*lanes: CourseLane) -> Course:
    places = {point.place for lane in lanes for point in lane.points}
    heads = {n: CourseHead(n, f"{n:040x}", "a subject", "An Author", _NOW + timedelta(hours=n)) for n in places}
    return Course(lanes, heads, 0.02)


def lane(*points: CoursePoint, **more: tuple[object, ...]) -> CourseLane:
    return CourseLane("zen3", "zen3", "lower", points, **more)  # type: ignore[arg-type]


def test_lanes_stand_on_one_axis_in_order_of_their_revisions() -> None:
    made = course(lane(point(30, 1.0), point(10, 1.1)), lane(point(20, 1.2)))
    assert made.data["places"] == [10, 20, 30]
    assert [of["at"] for of in made.data["lanes"]] == [[0, 2], [1]]
    assert 'points="0,' in made.drawn[0].svg
    assert 'cx="50.0%"' in made.drawn[1].svg


def test_interval_of_a_course_is_a_band_with_the_worse_end_below() -> None:
    made = course(lane(point(1, 1.5, 1.4, 1.6), point(2, 1.5, 1.4, math.inf)))
    data = made.data["lanes"][0]
    assert data["at"] is None
    assert data["lows"][0] < data["speeds"][0] < data["highs"][0] < 0
    # An end that nothing is known of.
    assert data["lows"][1] == data["speeds"][1] < data["highs"][1]


def test_points_without_a_ratio_are_left_out() -> None:
    made = course(lane(point(1, 0.0), point(2, math.nan), point(3, 1.0)))
    assert made.data["lanes"][0]["at"] == [2]


def test_long_courses_keep_their_extremes() -> None:
    (pieces,) = course(lane(*(point(n, 0.5 if n == 777 else 1.0) for n in range(MOST_POINTS * 2)))).pieces
    thin = thinned(pieces, 100)
    assert len(thin) == 100
    assert thin.highs.max() == pytest.approx(math.log(2))
    assert thin.middles.max() == thin.lows.max() == 0
    (few,) = course(lane(*(point(n, 1.0) for n in range(MOST_POINTS)))).pieces
    assert thinned(few, 100) is few


def test_steps_findings_and_machine_events_are_drawn_and_listed() -> None:
    found = lane(
        point(1, 1.0),
        point(5, 1.3),
        steps=(CourseStep(5, "f" * 40, "30 % slower from here on", "/findings/4/"),),
        flags=(CourseFlag(5, "/findings/4/", "finding 4"),),
        events=(CourseEvent(3, "new microcode"), CourseEvent(99, "out of sight")),
    )
    page = html("course", course(found))
    assert 'class="step" x1="100.0%"' in page
    assert 'class="event" x1="50.0%"' in page
    assert page.count("/findings/4/") >= 2
    assert "zen3: 2 revisions, the newest 1.30x slower than the reference, 1 step, 1 finding, 2 machine events" in page


def test_course_names_its_first_and_last_revision() -> None:
    page = html("course", course(lane(point(1, 1.0), point(5, 1.3))))
    assert f"{1:040x}"[:12] in page
    assert "2026-11-29" in page


# --- the small ones ---


def test_staircase_ends_with_what_the_whole_series_does() -> None:
    treads = (
        Tread(1.0, "unchanged", "nothing"),
        Tread(None, "inconclusive", "unbuilt"),
        Tread(1.7, "regressed", "1.7x"),
    )
    made = Staircase(("one", "two", "three"), (Flight("zen3", "lower", treads),), 0.02)
    ((_, svg, end),) = made.drawn
    assert end == "1.70x slower"
    assert svg.count("tread own") == 2
    ((_, _, short),) = Staircase(("one", "two"), (Flight("zen3", "lower", treads[:2]),), 0.02).drawn
    assert short == "0.0 % up to 1"


def test_bisection_narrows_from_step_to_step() -> None:
    steps = (NarrowingStep(50, "a" * 40, "s", "good", 50, 100, ""), NarrowingStep(75, "b" * 40, "s", "odd", 50, 75, ""))
    drawn = Narrowing(100, steps).drawn
    assert 'class="left" x="50.0%" width="50.0%"' in drawn[0][1]
    assert 'class="left" x="50.0%" width="25.0%"' in drawn[1][1]
    assert "25 of 100 commits left" in drawn[1][1]


def test_noise_says_its_rate_of_false_alarms() -> None:
    nights = (Night(_NOW.date(), 0.01, 0, 40), Night(_NOW.date(), 0.02, 1, 40))
    made = NoiseCourse(nights, 0.015)
    assert made.rate == "1 of 80 (1.25 %)"
    assert made.svg.count('class="alarmed"') == 1
    assert NoiseCourse(()).rate == "none measured"


def test_queue_has_ticks_at_full_hours_and_bars_that_never_end() -> None:
    bars = (
        QueueBar("a", _NOW - timedelta(minutes=30), _NOW + timedelta(hours=3), "runs", "runs"),
        QueueBar("b", _NOW + timedelta(hours=1), None, "waits", "waits for a machine"),
    )
    made = QueueBars(_NOW, bars)
    assert [label for _, label in made.hours] == ["11:00", "12:00", "13:00"]
    assert 'class="waits endless"' in made.drawn[1][1]
    assert made.begin == _NOW - timedelta(minutes=30)


@pytest.mark.parametrize("days", [0.01, 1, 40, 4000])
def test_queue_has_few_ticks_however_long_it_is(days: float) -> None:
    made = QueueBars(_NOW, (QueueBar("a", _NOW, _NOW + timedelta(days=days), "waits", ""),))
    assert len(made.hours) <= 9
