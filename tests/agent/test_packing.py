"""Bodies go compressed to servers that say they take it, and plain to all others."""

import gzip
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.transport import packed, packed_file

from tests.agent.fake_server import Answer, Lab, answer_call, problem, running_server
from tests.agent.test_client import build_client, build_lab

BOOT = "attempts/session-1-1/boots/0"
TAIL = {"console_tail": "the same line again\n" * 500}


def post_twice(client: Client) -> None:
    """The first answer tells what the server takes."""
    client.post("attempts/session-1-1/claim", {}, patience=5)
    client.post(BOOT, TAIL, patience=5)


def test_large_json_goes_compressed_once_the_server_said_that_it_takes_it() -> None:
    lab = build_lab()
    with running_server(lab) as server:
        post_twice(build_client(server))
    assert lab.encodings == ["", "gzip"]
    assert lab.boots["session-1", 0]["console_tail"] == TAIL["console_tail"]


def test_server_that_says_nothing_about_it_gets_plain_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = build_lab()
    with running_server(lab) as server:
        client = build_client(server)
        monkeypatch.setattr("tidemark_agent.wire.transport.Answer", lambda value, _takes_gzip: PlainAnswer(value))
        post_twice(client)
    assert lab.encodings == ["", ""]


class PlainAnswer:
    """An answer without the header."""

    takes_gzip = False

    def __init__(self, value: dict[str, object]) -> None:
        self.value = value


def test_server_that_changed_its_mind_gets_the_body_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = build_lab()

    def answer(lab: Lab, method: str, path: str, token: str | None, data: bytes) -> Answer:
        if lab.encodings[-1] == "gzip":
            return problem(415, "unsupported-media-type")
        return answer_call(lab, method, path, token, data)

    monkeypatch.setattr("tests.agent.fake_server.answer_call", answer)
    with running_server(lab) as server:
        post_twice(build_client(server))
    assert lab.encodings == ["", "gzip", ""]
    assert lab.boots["session-1", 0]["console_tail"] == TAIL["console_tail"]


@pytest.mark.parametrize(("content", "encoding"), [(b"System.map " * 20_000, "gzip"), (os.urandom(200_000), "")])
def test_artifacts_go_compressed_where_that_helps(tmp_path: Path, content: bytes, encoding: str) -> None:
    lab = build_lab()
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "file").write_bytes(content)
    with running_server(lab) as server:
        client = build_client(server)
        client.post("attempts/session-1-1/claim", {}, patience=5)
        client.put_artifact(sha256, tmp_path / "file", patience=5)
    assert lab.artifacts[sha256] == content
    assert lab.encodings[-1] == encoding
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_small_and_random_bodies_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 100)
    assert packed(b"x" * 1000) is None
    assert packed(os.urandom(5000)) is None
    with packed_file(tmp_path / "small") as small:
        assert small is None
    again = packed(b"x" * 5000)
    assert again is not None
    assert again == packed(b"x" * 5000)
    assert gzip.decompress(again) == b"x" * 5000


def full_disk(**_: object) -> IO[bytes]:
    return Path("/dev/full").open("w+b")


def no_file(**_: object) -> IO[bytes]:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("temporary", [full_disk, no_file])
def test_without_room_for_the_compressed_copy_the_file_goes_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Callable[..., IO[bytes]]
) -> None:
    content = b"".join(b"%d " % (number * number) for number in range(200_000))
    (tmp_path / "file").write_bytes(content)
    lab = build_lab()
    sha256 = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr("tidemark_agent.wire.transport.tempfile.TemporaryFile", temporary)
    with packed_file(tmp_path / "file") as small:
        assert small is None
    with running_server(lab) as server:
        client = build_client(server)
        client.post("attempts/session-1-1/claim", {}, patience=5)
        client.put_artifact(sha256, tmp_path / "file", patience=5)
    assert lab.artifacts[sha256] == content
    assert lab.encodings[-1] == ""
