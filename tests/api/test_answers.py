"""Answers that a reader knows already, packed ones, and those for pages of other sites."""

import gzip
import json

import brotli
import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.builders import build_measurement, build_message, build_series, build_session

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["series/", "schema/", "queue/"])
def test_answer_that_did_not_change_is_not_sent_again(client: Client, path: str) -> None:
    build_series()
    first = client.get(f"/api/v1/{path}")
    again = client.get(f"/api/v1/{path}", headers={"If-None-Match": f'"other", {first.headers["ETag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert again.headers["Access-Control-Allow-Origin"] == "*"


def test_answer_that_changed_is_sent(client: Client) -> None:
    first = client.get("/api/v1/series/")
    build_series()
    again = client.get("/api/v1/series/", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status_code == 200
    assert again.headers["ETag"] != first.headers["ETag"]


def test_packed_answer_has_the_same_mark_as_the_plain_one(client: Client) -> None:
    build_series()
    plain = client.get("/api/v1/series/")
    packed = client.get("/api/v1/series/", headers={"Accept-Encoding": "br, gzip"})
    assert packed.headers["ETag"] == plain.headers["ETag"]
    known = {"Accept-Encoding": "gzip", "If-None-Match": plain.headers["ETag"]}
    assert client.get("/api/v1/series/", headers=known).status_code == 304


def test_error_has_no_mark_and_is_never_unchanged(client: Client) -> None:
    answer = client.get("/api/v1/series/999/", headers={"If-None-Match": "*"})
    assert answer.status_code == 404
    assert "ETag" not in answer.headers
    assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_long_answer_is_packed_for_who_takes_it(client: Client) -> None:
    for _ in range(20):
        build_message()
    packed = client.get("/api/v1/messages/", headers={"Accept-Encoding": "gzip"})
    plain = client.get("/api/v1/messages/")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.content) == plain.content
    assert len(packed.content) < len(plain.content) / 2
    assert packed.headers["Content-Length"] == str(len(packed.content))
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("br", "br"),
        ("gzip, br", "br"),
        ("*", "br"),
        ("*, br;q=0", "gzip"),
        ("*, gzip;q=0", "br"),
        ("br;q=0.5, gzip", "gzip"),
        ("GZIP;Q=0.1", "gzip"),
        ("gzip;q=0.5, identity;q=0.2", "gzip"),
    ],
)
def test_long_answer_is_packed_as_it_is_wanted_most(client: Client, encoding: str, packed: str) -> None:
    for _ in range(20):
        build_message()
    answer = client.get("/api/v1/messages/", headers={"Accept-Encoding": encoding})
    assert answer.headers["Content-Encoding"] == packed
    unpack = {"br": brotli.decompress, "gzip": gzip.decompress}[packed]
    assert len(json.loads(unpack(answer.content))["results"]) == 20


@pytest.mark.parametrize(
    "encoding",
    ["", "identity", "gzip;q=0", "gzip; q=0.0", "*;q=0", "gzip;q=0, *;q=0", "gzip;q=x", "gzip;q=0.5, identity"],
)
def test_long_answer_is_plain_for_who_takes_nothing_packed(client: Client, encoding: str) -> None:
    for _ in range(20):
        build_message()
    answer = client.get("/api/v1/messages/", headers={"Accept-Encoding": encoding})
    assert "Content-Encoding" not in answer.headers
    assert len(answer.json()["results"]) == 20


def test_short_answer_is_not_packed(client: Client) -> None:
    answer = client.get("/api/v1/series/", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in answer.headers


def test_samples_are_packed_as_they_stream(client: Client) -> None:
    session = build_session(state="done")
    for boot in session.boots.all():
        build_measurement(boot, [1.0] * 500)
    path = f"/api/v1/sessions/{session.pk}/samples/"
    packed = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert packed.streaming
    assert packed.headers["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(packed.getvalue())) == json.loads(client.get(path).getvalue())


def test_pages_of_other_sites_may_read_without_a_login(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    answer = client.get("/api/v1/series/", headers={"Origin": "https://lwn.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert "Set-Cookie" not in answer.headers
    asked = client.options("/api/v1/series/", headers={"Access-Control-Request-Headers": "if-none-match"})
    assert asked.headers["Access-Control-Allow-Headers"] == "If-None-Match"


@pytest.mark.parametrize("path", ["/api/v1/agent/hello", "/api/v1/builds/1/again/", "/", "/admin/login/"])
def test_pages_of_other_sites_get_nothing_else(client: Client, path: str) -> None:
    for answer in (client.get(path), client.post(path), client.options(path)):
        assert "Access-Control-Allow-Origin" not in answer.headers
