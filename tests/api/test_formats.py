"""The same rows as JSON, CSV, lines and columns, a part of their fields, and pages that `Link` tells."""

import csv
import io
import json
import re
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework import serializers

from server.api.formats import PlainRows
from server.core.rows.lines import csv_cell
from server.detection.models import Verdict
from tests.builders import (
    EPOCH,
    build_case,
    build_comparison,
    build_finding,
    build_machine,
    build_measurement,
    build_message,
    build_series,
    build_session,
)

pytestmark = pytest.mark.django_db
CSV, LINES, COLUMNS = "text/csv", "application/x-ndjson", "application/vnd.tidemark.columns+json"


def table(answer: Any) -> list[list[str]]:
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    text = answer.content.decode()
    assert text.endswith("\r\n")
    return list(csv.reader(io.StringIO(text, newline="")))


def test_a_list_is_told_as_csv_lines_and_columns(client: Client) -> None:
    build_case("fault-4k", parameters={"size": "4k"})
    build_case("fault-2m")
    rows = client.get("/api/v1/cases/").json()["results"]
    head, *lines = table(client.get("/api/v1/cases/?format=csv"))
    assert head == list(rows[0])
    assert [dict(zip(head, line, strict=True))["name"] for line in lines] == ["fault-2m", "fault-4k"]
    first = dict(zip(head, lines[1], strict=True))
    assert (first["parameters"], first["runs"], first["enabled"]) == ('{"size":"4k"}', str(rows[1]["runs"]), "true")
    answer = client.get("/api/v1/cases/?format=ndjson")
    assert answer.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert [json.loads(line) for line in answer.content.splitlines()] == rows
    told = client.get("/api/v1/cases/?format=columns")
    assert told.headers["Content-Type"] == COLUMNS
    assert told.json()["results"] == {name: [row[name] for row in rows] for name in rows[0]}
    assert told.json()["next"] is None


def test_a_list_without_rows_has_its_header_and_its_type(client: Client) -> None:
    ((*head,),) = table(client.get("/api/v1/messages/?format=csv"))
    assert head[:2] == ["id", "message_id"]
    empty = client.get("/api/v1/messages/?format=ndjson")
    assert (empty.status_code, empty.content) == (200, b"")
    assert empty.headers["Content-Type"] == "application/x-ndjson; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "told"),
    [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "application/json"),
        ("text/csv", CSV),
        ("text/csv, */*", CSV),
        ("text/*;q=0.5, application/x-ndjson;q=0.9", LINES),
        ("application/json;q=0, */*;q=0.1", CSV),
        ("application/*", "application/json"),
        (COLUMNS, COLUMNS),
    ],
)
def test_accept_chooses_what_is_wanted_most(client: Client, accept: str, told: str) -> None:
    answer = client.get("/api/v1/cases/", headers={"Accept": accept} if accept else {})
    assert answer.headers["Content-Type"].partition(";")[0] == told
    assert "Accept" in answer.headers["Vary"].split(", ")


def test_the_parameter_outdoes_accept_and_what_nobody_has_is_refused(client: Client) -> None:
    assert table(client.get("/api/v1/cases/?format=csv", headers={"Accept": "application/json"}))
    assert client.get("/api/v1/cases/", headers={"Accept": "image/png"}).status_code == 406
    for path, known in (("cases/", "json, csv, ndjson, columns"), (f"series/{build_series().pk}/", "json")):
        for name in ("xml", "", "CSV"):
            answer = client.get(f"/api/v1/{path}?format={name}")
            assert answer.status_code == 400
            assert answer.json()["errors"] == {"format": [f"There is no such format here. Known: {known}."]}


def test_a_problem_is_json_whatever_was_asked_for(client: Client) -> None:
    for path, status in (("cases/?format=csv&colour=red", 400), ("sessions/999/cells/?format=ndjson", 404)):
        answer = client.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status
    assert client.options("/api/v1/cases/?format=csv").json()["renders"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (-0.5, -0.5),
        (-12, -12),
        (1e-07, 1e-07),
        (None, None),
        (True, "true"),
        ("", ""),
        ("mm: a+b=c", "mm: a+b=c"),
        ("=1+1", "'=1+1"),
        ("-1", "'-1"),
        ("+cmd|x", "'+cmd|x"),
        ("@SUM(1)", "'@SUM(1)"),
        (" \u200b\ufeff=1", "' \u200b\ufeff=1"),
        ("\uff1d1", "'\uff1d1"),
        ("'=1", "''=1"),
        ("it's", "it's"),
        ("x;=1", "x;'=1"),
        ("x\r\n\t=1\n- y", "x\r\n\t'=1\n'- y"),
        ({"a": "=1"}, '{"a":"=1"}'),
        ([], "[]"),
    ],
)
def test_no_text_of_a_stranger_is_a_formula_and_numbers_stay_numbers(value: Any, told: Any) -> None:
    assert csv_cell(value) == told
    if isinstance(value, str):
        # What was put in front can be taken away again.
        assert re.sub("(^|(?<=[;\t\r\n]))'", "", str(told)) == value


def test_a_hostile_subject_is_harmless_and_stays_one_line(client: Client) -> None:
    build_message(subject='=HYPERLINK("http://evil.example","x")\n\x85\u2028y')
    head, line = table(client.get("/api/v1/messages/?format=csv"))
    assert line[head.index("subject")] == '\'=HYPERLINK("http://evil.example","x")\n\x85\u2028y'
    text = client.get("/api/v1/messages/?format=ndjson").content.decode()
    assert len(text.splitlines()) == 1
    assert json.loads(text)["subject"].endswith("\n\x85\u2028y")


def test_pages_of_every_form_follow_each_other_by_link(client: Client) -> None:
    made = [build_message().pk for _ in range(5)]
    for form in ("json", "csv", "ndjson"):
        found: list[int] = []
        url, pages = f"/api/v1/messages/?format={form}&fields=id&page_size=2", 0
        while url:
            answer = client.get(url)
            if form == "csv":
                found += [int(line[0]) for line in table(answer)[1:]]
            else:
                text = answer.content.decode().splitlines()
                rows = answer.json()["results"] if form == "json" else map(json.loads, text)
                found += [row["id"] for row in rows]
            pages += 1
            links = dict(re.findall(r'<([^>]*)>; rel="(next|prev)"', answer.headers.get("Link", "")))
            links = {name: url for url, name in links.items()}
            assert ("prev" in links) is (pages > 1)
            url = links.get("next", "")
        assert (found, pages) == (made[::-1], 3)
    assert "Link" in client.get("/api/v1/messages/").headers["Access-Control-Expose-Headers"]


def test_an_unchanged_page_still_tells_where_the_next_one_is(client: Client) -> None:
    for _ in range(2):
        build_message()
    first = client.get("/api/v1/messages/?page_size=1&format=csv")
    again = client.get("/api/v1/messages/?page_size=1&format=csv", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.headers["Link"]) == (304, first.headers["Link"])
    assert first.headers["ETag"] != client.get("/api/v1/messages/?page_size=1").headers["ETag"]


def test_rows_beside_other_things_bring_their_marks_along(client: Client) -> None:
    session = build_session(machine=build_machine("box", virtual=True), state="done")
    build_comparison(session, Verdict.REGRESSED)
    path = reverse("api-session-cells", args=[session.pk])
    head, line = table(client.get(path, {"format": "csv", "fields": "evidence,session,verdict,case"}))
    assert head == ["evidence", "session", "verdict", "case"]
    assert line == ["false", str(session.pk), "regressed", "fault-4k"]
    told = client.get(path, {"format": "columns"}).json()
    assert (told["evidence"], told["cells"]["verdict"], told["cells"]["machine"]) == (False, ["regressed"], ["box"])


def test_two_kernels_are_told_as_one_table(client: Client) -> None:
    session = build_session(state="done", boots_per_side=2)
    for boot in session.boots.all():
        build_measurement(boot, [100.0, 101.0 + boot.position])
    words = {"base": f"build:{session.base_build_id}", "patched": f"build:{session.patched_build_id}"}
    head, line = table(client.get(reverse("api-compare"), {**words, "format": "csv"}))
    row = dict(zip(head, line, strict=True))
    assert (row["evidence"], row["shares_session"], row["case"]) == ("true", "true", "fault-4k")
    told = client.get(reverse("api-compare"), {**words, "format": "columns", "fields": "case,ratio"}).json()
    assert list(told["machines"][0]["comparisons"]) == ["case", "ratio"]


@pytest.mark.parametrize("path", ["findings/", "series/", "sessions/", "queue/", "attempts/"])
def test_fields_leave_what_is_named_in_that_order(client: Client, path: str) -> None:
    series = build_series()
    build_session(series)
    build_finding(series)
    rows = client.get(f"/api/v1/{path}").json()
    rows = rows.get("results", rows.get("rows"))
    for row in rows:
        name, other = list(row)[-1], next(iter(row))
        told = client.get(f"/api/v1/{path}?fields={name},{other},{name}").json()
        told = told.get("results", told.get("rows"))
        assert [list(one) for one in told] == [[name, other]] * len(rows)
        assert told[0] == {name: row[name], other: row[other]} or len(rows) > 1


def test_fields_of_single_answers_and_of_rows_beside_other_things(client: Client) -> None:
    series = build_series()
    session = build_session(series, state="done")
    build_comparison(session, Verdict.REGRESSED)
    finding = build_finding(series)
    for path in (
        f"findings/{finding.pk}/",
        f"series/{session.series_id}/",
        f"sessions/{session.pk}/",
        "machines/vm-haswell/",
    ):
        whole = client.get(f"/api/v1/{path}").json()
        for name in whole:
            assert client.get(f"/api/v1/{path}?fields={name}").json() == {name: whole[name]}
    told = client.get(f"/api/v1/sessions/{session.pk}/cells/?fields=case,ratio").json()
    assert list(told) == ["session", "virtual", "evidence", "next", "previous", "cells"]
    assert [list(cell) for cell in told["cells"]] == [["case", "ratio"]]


@pytest.mark.parametrize(
    ("asked", "strange"), [("id,knid", "knid"), ("", ""), ("id,", ""), ("%25d", "%d"), ("x" * 100, "x" * 40)]
)
def test_an_unknown_field_is_an_error_that_lists_the_known_ones(client: Client, asked: str, strange: str) -> None:
    answer = client.get(f"/api/v1/findings/?fields={asked}")
    assert answer.status_code == 400
    (told,) = answer.json()["errors"]["fields"]
    assert told.startswith(f"There is no field {strange} here. Known: id, series, tree, ")
    assert "vector" in told


def test_fields_that_are_not_asked_for_cost_no_queries(client: Client, django_assert_num_queries: Any) -> None:
    series = build_series()
    build_comparison(build_session(series, state="done"), Verdict.REGRESSED)
    finding = build_finding(series)
    for path in ("findings/", "series/", "sessions/", "attempts/", f"findings/{finding.pk}/", f"series/{series.pk}/"):
        name = "key" if path == "attempts/" else "id"
        with django_assert_num_queries(1):
            assert client.get(f"/api/v1/{path}?fields={name}").status_code == 200


def test_a_part_has_a_mark_of_its_own_and_is_known_by_it(client: Client) -> None:
    build_message()
    whole, part = (client.get(f"/api/v1/messages/{query}").headers["ETag"] for query in ("", "?fields=id"))
    assert whole != part
    assert client.get("/api/v1/messages/?fields=id", headers={"If-None-Match": part}).status_code == 304


class _Inner(serializers.Serializer[Any]):
    name = serializers.CharField(source="of.name", default=None, allow_null=True)
    state = serializers.ChoiceField(Verdict.choices)
    at = serializers.DateTimeField(allow_null=True)
    count = serializers.IntegerField()
    share = serializers.FloatField()
    told = serializers.CharField(source="tell")
    twice = serializers.SerializerMethodField()

    def get_twice(self, row: Any) -> int:
        return 2 * int(row["count"] if isinstance(row, dict) else row.count)


class _Quick(_Inner):
    class Meta:
        list_serializer_class = PlainRows


def test_plain_rows_are_told_as_their_form_tells_each() -> None:
    one = {
        "of": SimpleNamespace(name=7),
        "state": Verdict.REGRESSED,
        "at": EPOCH,
        "count": "3",
        "share": 1,
        "tell": "a",
    }
    rows: list[Any] = [
        SimpleNamespace(**{**one, "tell": lambda: "called"}),
        SimpleNamespace(**{**one, "of": None, "at": None, "count": True}),
        one,
    ]
    told: Any = _Quick(rows, many=True).data
    assert told == [_Inner(row).data for row in rows]
    assert [type(value) for value in told[0].values()] == [str, str, str, int, float, str, int]
