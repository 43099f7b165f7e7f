"""Bodies of agents that come as gzip: whole, torn, foreign, and far larger than they look."""

import gc
import gzip
import hashlib
import io
import json
import weakref
from typing import Any

import pytest
from django.test import Client
from pytest_django.fixtures import Settings

from server.api.parsers import AgentJSONParser
from server.builds import storage
from server.builds.storage import FolderStore
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.work import local_builder
from tests.api.test_agent_api import AGENT, busy_builder, dispatched_build

pytestmark = pytest.mark.django_db
CLAIM = "/api/v1/agent/attempts/build-1/claim"
BODY = json.dumps({"agent": AGENT, "version": "0.1.0", "host": "here"}).encode()


def send(path: str, body: bytes, kind: str = "application/json", encoding: str = "gzip", method: str = "post") -> Any:
    token = issue_token(name="x", scope=ApiToken.Scope.BUILDER, subject=local_builder().name)
    headers = {"Authorization": f"Bearer {token}", "Content-Encoding": encoding}
    return Client().generic(method.upper(), path, body, kind, headers=headers)


def put(content: bytes, body: bytes, encoding: str = "gzip") -> Any:
    busy_builder()
    path = f"/api/v1/agent/artifacts/{hashlib.sha256(content).hexdigest()}"
    return send(path, body, "application/octet-stream", encoding, "put")


def test_packed_json_is_read_like_plain_json_and_every_answer_says_so() -> None:
    dispatched_build()
    response = send(CLAIM, gzip.compress(BODY))
    assert response.status_code == 200
    assert response.json()["kind"] == "build"
    assert response.headers["Accept-Encoding"] == "gzip"
    refused = Client().post(CLAIM)
    assert (refused.status_code, refused.headers["Accept-Encoding"]) == (401, "gzip")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (gzip.compress(BODY)[:-9], 400, "parse-error"),
        (BODY, 400, "parse-error"),
        (gzip.compress(BODY) + b"more", 400, "parse-error"),
        (gzip.compress(b"{"), 400, "parse-error"),
        (gzip.compress(b"[" * 90_000), 400, "parse-error"),
        (gzip.compress(b'{"a":' * 400 + b"1" + b"}" * 400), 400, "parse-error"),
        (gzip.compress(b"\0" * (33 * 1024 * 1024)), 413, "too-large"),
    ],
    ids=["torn", "plain", "followed", "no JSON", "nested", "nested-and-whole", "bomb"],
)
def test_packed_body_that_is_wrong_is_a_problem_and_no_server_error(body: bytes, status: int, code: str) -> None:
    dispatched_build()
    response = send(CLAIM, body)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "more",
    [
        '"a":[' + "{}," * 150_000 + "0]",
        '"a":[' + '{"":' * 20 + "0" + "}" * 20 + "]",
        '"a":[' + "[]," * 150_000 + "0]",
        '"a":{' + '"":0,' * 400_000 + '"":0}',
        '"a":[' + "0," * 700_000 + "0]",
    ],
    ids=["objects", "few", "lists", "names", "items"],
)
def test_small_body_of_very_many_parts_is_refused_before_it_is_read(more: str) -> None:
    dispatched_build()
    response = send(CLAIM, gzip.compress(b"{" + more.encode() + b"," + BODY[1:]))
    few = len(more) < 1000
    assert (response.status_code, response.json().get("code")) == ((200, None) if few else (413, "too-large"))


def test_brackets_in_a_text_are_no_parts() -> None:
    dispatched_build()
    shown = json.dumps({"log": '{[\\"' * 200_000})
    assert send(CLAIM, gzip.compress(shown[:-1].encode() + b"," + BODY[1:])).status_code == 200


@pytest.mark.parametrize("charset", ["utf-7", "bz2_codec", "cp037"])
def test_json_is_utf_8_whatever_charset_its_sender_names(charset: str) -> None:
    dispatched_build()
    assert send(CLAIM, BODY, f"application/json; charset={charset}", "").status_code == 200


def test_plain_body_has_the_same_limit(settings: Settings) -> None:
    dispatched_build()
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    response = send(CLAIM, json.dumps({"agent": "x" * 2000}).encode(), encoding="")
    assert (response.status_code, response.json()["code"]) == (413, "too-large")


def test_other_encodings_are_refused_with_the_one_that_is_taken() -> None:
    dispatched_build()
    response = send(CLAIM, BODY, encoding="br")
    assert (response.status_code, response.json()["code"]) == (415, "unsupported-media-type")
    assert "gzip" in response.json()["title"]


def test_packed_artifact_is_stored_unpacked_under_the_hash_of_its_content() -> None:
    content = b"CONFIG_64BIT=y\n" * 10_000
    assert put(content, gzip.compress(content)).status_code == 201
    assert FolderStore().place(hashlib.sha256(content).hexdigest()).read_bytes() == content


def test_packed_artifact_that_is_torn_or_a_bomb_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"System.map " * 100_000
    packed = gzip.compress(content)
    assert put(content, packed[: len(packed) // 2]).status_code == 400
    monkeypatch.setattr(storage, "MAX_BYTES", 500_000)
    assert put(content, packed).status_code == 413
    path = FolderStore().place(hashlib.sha256(content).hexdigest())
    assert not path.parent.is_dir() or list(path.parent.iterdir()) == []


def test_empty_artifact_needs_no_encoding() -> None:
    assert busy_builder().put(b"") in {200, 201}


class Sent(io.BytesIO):
    """A body on its way."""

    def is_taken(self) -> bool:
        return self.tell() == len(self.getvalue())


def arrive(path: str, content: bytes, method: str = "PUT", **headers: str) -> tuple[int, Sent]:
    """The status, and the body as far as it was read. `generic` would give a body of its own."""
    sent = Sent(content)
    extra: dict[str, Any] = {"wsgi.input": sent}
    kind = "application/octet-stream" if method == "PUT" else "application/json"
    response = Client().generic(method, path, content, kind, headers=headers, **extra)
    return response.status_code, sent


def test_body_is_taken_whole_whatever_the_answer_for_its_sender_would_not_hear_it(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    busy_builder()
    token = issue_token(name="x", scope=ApiToken.Scope.BUILDER, subject=local_builder().name)
    builder_word = {"Authorization": f"Bearer {token}"}
    content = b"System.map " * 100_000
    path = f"/api/v1/agent/artifacts/{hashlib.sha256(content).hexdigest()}"
    for status in (201, 200):
        found, sent = arrive(path, content, **builder_word)
        assert (found, sent.is_taken()) == (status, True)
    found, sent = arrive(path, content)
    assert (found, sent.is_taken()) == (401, True)
    monkeypatch.setattr(storage, "MAX_BYTES", 500_000)
    found, sent = arrive(path.replace("artifacts/", "artifacts/0")[:-1], content, **builder_word)
    assert (found, sent.is_taken()) == (413, True)
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    found, sent = arrive("/api/v1/agent/hello", json.dumps({"agent": "x" * 1_000_000}).encode(), "POST", **builder_word)
    assert (found, sent.is_taken()) == (413, True)


def test_large_bodies_do_not_stay_until_rubbish_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that serves looks for it seldom, and a request refers to itself."""
    dispatched_build()
    seen: list[Any] = []
    parse = AgentJSONParser.parse

    def noted(self: Any, stream: Any, media_type: Any = None, context: Any = None) -> Any:
        seen.append(weakref.ref(context["request"]))
        return parse(self, stream, media_type, context)

    monkeypatch.setattr(AgentJSONParser, "parse", noted)
    large = gzip.compress(json.dumps({"agent": "x" * 5_000_000}).encode())
    gc.disable()
    try:
        for _ in range(3):
            assert send(CLAIM, large).status_code == 400
        assert [one() is None for one in seen[:2]] == [True, True]
    finally:
        gc.enable()
