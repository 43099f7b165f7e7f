"""From comparisons to a fingerprint: columns, groups, their order, and why a cell is empty."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from server.core.reasons import Because
from server.dashboard.pictures.fingerprint import Absent, Column, Dot, Fingerprint, Group, Line, svg_of
from server.dashboard.rows.fingerprints import fingerprint_of
from server.detection.findings.table import comparison_table
from server.lab.models import Session
from server.sources.models import Series
from tests.builders import build_case, build_comparison, build_finding, build_machine, build_series, build_session
from tests.dashboard.conftest import Reader

pytestmark = pytest.mark.django_db


def session_on(series: Series, machine: str, uarch: str, **fields: Any) -> Session:
    made = build_machine(machine, uarch, virtual=False)
    fields.setdefault("state", Session.State.DONE)
    return build_session(series, made, **fields)


def drawn(series: Series | None, **gaps: Any) -> Fingerprint:
    return fingerprint_of(comparison_table(Session.objects.filter(series=series)), **gaps)


def test_cases_are_grouped_by_what_they_have_in_common_and_named_by_their_sizes() -> None:
    session = session_on(build_series(), "z3", "zen3")
    for name in ("copy-A-to-B-1M-hot", "copy-A-to-B-2M-hot", "copy-B-to-A-1M-hot", "copy-B-to-A-2M-hot", "fault"):
        build_comparison(session, "unchanged", case=build_case(name))
    groups = {group.title: [line.label for line in group.lines] for group in drawn(session.series).groups}
    assert groups == {
        "mm-basic: copy A → B hot": ["1M", "2M"],
        "mm-basic: copy B → A hot": ["1M", "2M"],
        "mm-basic": ["fault"],
    }


def test_parameters_of_a_case_are_heard_before_its_name() -> None:
    session = session_on(build_series(), "z3", "zen3")
    for name, size in (("one", "4k"), ("two", "2M")):
        case = build_case(name)
        case.parameters = {"cache": "cold", "size": size}
        case.save()
        build_comparison(session, "unchanged", case=case)
    (group,) = drawn(session.series).groups
    assert group.title == "mm-basic: cache cold"
    assert sorted(line.label for line in group.lines) == ["size 2M", "size 4k"]
    assert [dict(line.parameters)["size"] for line in group.lines] == ["2M", "4k"]


def test_what_disagrees_in_sign_stands_first_then_the_worst() -> None:
    series = build_series()
    one, other = session_on(series, "z3", "zen3"), session_on(series, "z5", "zen5")
    for name, ratio in (("better", 0.5), ("slower", 1.2), ("slowest", 3.0), ("split", 1.1)):
        build_comparison(one, "improved" if ratio < 1 else "regressed", case=build_case(name), ratio=ratio)
    build_comparison(other, "improved", case=build_case("split"), ratio=0.9)
    (group,) = drawn(series).groups
    assert [line.label for line in group.lines] == ["split", "slowest", "slower", "better"]


def test_many_lines_fold_but_for_the_worst_groups() -> None:
    session = session_on(build_series(), "z3", "zen3")
    for kind in "abcde":
        for size in range(1, 7):
            verdict, ratio = ("regressed", 1.5) if kind == "d" else ("unchanged", 1.0)
            build_comparison(session, verdict, case=build_case(f"{kind}-{size}M"), ratio=ratio)
    groups = drawn(session.series).groups
    assert groups[0].title == "mm-basic: d"
    assert [group.is_open for group in groups] == [True, False, False, False, False]


def test_machines_that_agree_share_a_column_and_the_surest_of_them_speaks() -> None:
    series = build_series()
    for machine, ratio in (("z3-a", 1.5), ("z3-b", 1.6)):
        build_comparison(session_on(series, machine, "zen3"), "regressed", ratio=ratio)
    picture = drawn(series)
    assert [(column.title, column.note) for column in picture.columns] == [("zen3", "2 machines agree")]
    (cell,) = picture.groups[0].lines[0].cells
    assert isinstance(cell, Dot)


@pytest.mark.parametrize(
    ("state", "note"), [(Session.State.FAILED, "z3-a; z3-b failed"), (Session.State.DONE, "z3-a alone")]
)
def test_machine_that_told_nothing_agrees_with_nobody(state: str, note: str) -> None:
    series = build_series()
    build_comparison(session_on(series, "z3-a", "zen3"), "regressed", ratio=1.5)
    session_on(series, "z3-b", "zen3", state=state)
    assert [column.note for column in drawn(series).columns] == [note]


def test_machines_that_contradict_each_other_have_a_column_each() -> None:
    series = build_series()
    build_comparison(session_on(series, "z3-a", "zen3"), "regressed")
    build_comparison(session_on(series, "z3-b", "zen3"), "unchanged")
    columns = drawn(series).columns
    assert [(column.title, column.note) for column in columns] == [
        ("z3-a", "zen3, its machines differ"),
        ("z3-b", "zen3, its machines differ"),
    ]


@pytest.mark.parametrize(
    ("fields", "gaps", "said"),
    [
        ({}, [], "not asked there"),
        ({"reason_code": Because.SAME_CODE}, [], "both kernels run the same code there"),
        ({"state": Session.State.FAILED, "reason": "no disk"}, [], "session failed: no disk"),
        ({"state": Session.State.RUNNING}, [], "session is running"),
        (
            {},
            [{"machine": "z5", "uarch": "zen5", "reason": "fault-4k: no huge pages"}],
            "not asked there, or no value (fault-4k: no huge pages)",
        ),
    ],
)
def test_empty_cell_says_why(fields: dict[str, Any], gaps: list[dict[str, str]], said: str) -> None:
    series = build_series()
    build_comparison(session_on(series, "z3", "zen3"), "regressed", case=build_case("fault-4k"))
    session_on(series, "z5", "zen5", **fields)
    (line,) = drawn(series, gaps=gaps).groups[0].lines
    assert line.cells[1] == Absent(said)


@pytest.mark.parametrize("page", ["series", "findings"])
def test_fingerprint_is_an_image_with_a_policy_of_its_own(reader: Reader, page: str) -> None:
    series = build_series()
    build_comparison(session_on(series, "z3", "zen3"), "regressed")
    reader.read(f"/series/{series.pk}/fingerprint.svg", status=404)
    finding = build_finding(series)
    address = f"/{page}/{series.pk if page == 'series' else finding.pk}/fingerprint.svg"
    assert f'href="{address}"' in reader.read(address.removesuffix("fingerprint.svg"))
    answer = reader.client.get(address)
    assert answer.headers["Content-Type"] == "image/svg+xml"
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert "no-store" in answer.headers["Cache-Control"]
    assert "zen3" in ET.tostring(ET.fromstring(answer.content), encoding="unicode")  # noqa: S314 (our own)
    reader.read(f"/{page}/99999999/fingerprint.svg", status=404)


@pytest.mark.parametrize("page", ["series", "findings"])
def test_fingerprint_leaves_as_csv(reader: Reader, page: str) -> None:
    series = build_series()
    build_comparison(session_on(series, "z3", "zen3"), "regressed")
    finding = build_finding(series)
    address = f"/{page}/{series.pk if page == 'series' else finding.pk}/fingerprint.csv"
    assert f'href="{address}"' in reader.read(address.removesuffix("fingerprint.csv"))
    answer = reader.client.get(address)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    head, line = answer.content.decode().splitlines()
    assert head.startswith("group,case,parameters,column,verdict,ratio,low,high,better")
    assert ",zen3,regressed," in line


def test_titles_of_groups_are_whole_in_the_image() -> None:
    title = "a-benchmark-with-a-long-name: a_case_with_a_long_name DRAM0 to DRAM1 cold"
    line = Line("2M", "", (Absent("not there"),))
    picture = Fingerprint((Column("zen3", "zen3"),), (Group(title, (line,)),), 0.01)
    assert title in svg_of(picture)
