"""Every value of a session in one request: narrowed, as a table, as Arrow and Parquet, in pieces."""

import csv
import io
import json
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from pyarrow import parquet

from server.core import clock
from server.lab.models import Boot, Session
from server.results.models import PackedValues
from tests.builders import build_case, build_measurement, build_metric, build_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def session() -> Session:
    """Four boots; of each two cases with three values, the first of which is warm-up."""
    made = build_session(state=Session.State.DONE)
    for boot in made.boots.order_by("position"):
        for case in (build_case("fault-4k", parameters={"size": "4k"}), build_case("fault-2m")):
            build_measurement(boot, [9.5, 1.0 + boot.position, 2.0], case, build_metric())
    return made


def samples(client: Client, session: Session, **query: Any) -> Any:
    return client.get(reverse("api-session-samples", args=[session.pk]), query)


def measurements(client: Client, session: Session, **query: Any) -> Any:
    return client.get(reverse("api-measurement-list"), {"session": session.pk, **query})


def test_samples_of_a_case_as_csv_are_one_request(client: Client, session: Session) -> None:
    answer = samples(client, session, case="fault-4k", format="csv", fields="case,boot,arm,run,warmup,value")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    head, *lines = csv.reader(io.StringIO(answer.getvalue().decode()))
    assert head == ["case", "boot", "arm", "run", "warmup", "value"]
    assert len(lines) == 4 * 3
    assert lines[:4] == [
        ["fault-4k", "0", "base", "0", "true", "9.5"],
        ["fault-4k", "0", "base", "1", "false", "1.0"],
        ["fault-4k", "0", "base", "2", "false", "2.0"],
        ["fault-4k", "1", "patched", "0", "true", "9.5"],
    ]


@pytest.mark.parametrize(
    ("query", "boots"),
    [
        ({}, 8),
        ({"case": "fault-2m"}, 4),
        ({"parameter": "size:4k"}, 4),
        ({"arm": "base"}, 4),
        ({"benchmark": "mm-basic", "metric": "time", "case": "fault-2m", "arm": "patched"}, 2),
    ],
)
def test_samples_are_narrowed_in_every_form(
    client: Client, session: Session, query: dict[str, str], boots: int
) -> None:
    columns = json.loads(samples(client, session, **query).getvalue())["columns"]
    assert sum(len(column["boots"]) for column in columns) == boots
    lines = samples(client, session, **query, format="ndjson").getvalue().splitlines()
    assert len(lines) == 3 * boots
    assert pa.ipc.open_stream(samples(client, session, **query, format="arrow").getvalue()).read_all().num_rows == len(
        lines
    )


def test_a_misspelt_filter_of_samples_is_an_error(client: Client, session: Session) -> None:
    assert list(samples(client, session, case="fault").json()["errors"]) == ["case"]
    assert list(samples(client, session, page_size=3).json()["errors"]) == ["page_size"]
    assert list(samples(client, session, fields="run").json()["errors"]) == ["fields"]
    assert list(samples(client, session, fields="boots", format="csv").json()["errors"]) == ["fields"]


def test_fields_leave_columns_what_is_named(client: Client, session: Session) -> None:
    for form in ("json", "columns"):
        told = json.loads(samples(client, session, fields="case,values", format=form).getvalue())
        assert [list(column) for column in told["columns"]] == [["case", "values"]] * 2


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_arrow_and_parquet_hold_the_rows_of_the_lines(
    client: Client, session: Session, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Boot.objects.filter(session=session, position=3).update(state=Boot.State.FAILED, outcome="late")
    # Several batches, of whole boots.
    monkeypatch.setattr("server.api.arrow._VALUES", 7)
    lines = [json.loads(line) for line in samples(client, session, format="ndjson").getvalue().splitlines()]
    packed = samples(client, session, format=form)
    assert packed.headers["Content-Type"] == f"application/vnd.apache.{'arrow.stream' if form == 'arrow' else form}"
    body = packed.getvalue()
    if form == "arrow":
        stream = pa.ipc.open_stream(body)
        batches = list(stream)
        table = pa.Table.from_batches(batches)
        assert [batch.num_rows for batch in batches] == [6] * 4
    else:
        table = parquet.read_table(io.BytesIO(body))
        assert parquet.ParquetFile(io.BytesIO(body)).num_row_groups == 4
    assert table.to_pylist() == lines
    assert [row["judged"] for row in lines].count(False) == 6
    some = samples(client, session, format=form, fields="value,case").getvalue()
    read = pa.ipc.open_stream(some).read_all() if form == "arrow" else parquet.read_table(io.BytesIO(some))
    assert read.column_names == ["value", "case"]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_measurements_come_whole_as_arrow_and_parquet(
    client: Client, session: Session, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.results.samples._VALUES_AT_ONCE", 8)
    body = measurements(client, session, format=form).getvalue()
    table = pa.ipc.open_stream(body).read_all() if form == "arrow" else parquet.read_table(io.BytesIO(body))
    rows = measurements(client, session).json()["results"][::-1]
    told = table.to_pylist()
    assert [{**row, "recorded_at": None} for row in told] == [{**row, "recorded_at": None} for row in rows]
    assert table.schema.field("values").type == pa.list_(pa.float64())
    assert len(told) == 8
    refused = measurements(client, session, format=form, page_size=5)
    assert list(refused.json()["errors"]) == ["page_size"]
    assert refused.status_code == 400


@pytest.mark.parametrize("form", ["json", "csv", "ndjson", "arrow", "parquet"])
def test_nothing_measured_is_an_empty_table(client: Client, form: str) -> None:
    session = build_session()
    for ask in (samples, measurements):
        answer = ask(client, session, format=form)
        assert answer.status_code == 200
        body = answer.getvalue()
        if form in {"arrow", "parquet"}:
            read = pa.ipc.open_stream(body).read_all() if form == "arrow" else parquet.read_table(io.BytesIO(body))
            assert (read.num_rows, "case" in read.column_names) == (0, True)


def test_pieces_are_read_one_at_a_time(
    client: Client, session: Session, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr("server.results.samples._VALUES_AT_ONCE", 12)
    with django_assert_num_queries(2):
        answer = samples(client, session, format="csv")
    pieces = iter(answer)
    with django_assert_num_queries(2):
        list(pieces)


def test_samples_that_did_not_change_since_are_not_sent_again(client: Client, session: Session) -> None:
    now = clock.now()
    assert "Last-Modified" not in samples(client, session).headers
    Session.objects.filter(pk=session.pk).update(state_since=now - timedelta(hours=3))
    Boot.objects.filter(session=session).update(state_since=now - timedelta(hours=3), ended_at=now - timedelta(hours=2))
    PackedValues.objects.filter(Q(boot__session=session)).update(recorded_at=now - timedelta(hours=1))
    first = samples(client, session)
    since = {"If-Modified-Since": first.headers["Last-Modified"]}
    path = reverse("api-session-samples", args=[session.pk])
    assert client.get(path, headers=since).status_code == 304
    # Who has a mark of it is told by that alone.
    assert client.get(path, headers={**since, "If-None-Match": '"other"'}).status_code == 200
    PackedValues.objects.filter(boot__session=session).update(recorded_at=now - timedelta(minutes=5))
    assert client.get(path, headers=since).status_code == 200
    assert client.get(path, headers={"If-Modified-Since": "yesterday"}).status_code == 200
