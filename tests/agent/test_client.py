"""The client: what it repeats, what it believes, what it never shows."""

import hashlib
import io
import threading
import time
from pathlib import Path

import pytest
from tidemark_agent.errors import (
    FailingError,
    InfrastructureError,
    RefusedError,
    UnauthorizedError,
    UnreachableError,
)
from tidemark_agent.log import Log
from tidemark_agent.wire.client import Client, Lease

from tests.agent.fake_server import TOKEN, Lab, running_server

CLAIM = "attempts/session-1-1/claim"


def build_client(
    server: str,
    *,
    stream: io.StringIO | None = None,
    token: str = TOKEN,
    stop: threading.Event | None = None,
    ca_file: Path | None = None,
) -> Client:
    log, stop = Log(stream or io.StringIO()), stop or threading.Event()
    return Client(server=server, token=lambda: token, agent="agent-1", log=log, stop=stop, ca_file=ca_file)


def build_lab() -> Lab:
    return Lab(assignments={"session-1-1": {"kind": "session", "session": {"boots": []}}})


def test_server_errors_are_repeated_until_there_is_an_answer() -> None:
    lab = build_lab()
    lab.failures_left = 2
    with running_server(lab) as server:
        answer = build_client(server).post(CLAIM, {}, patience=30)
    assert answer["kind"] == "session"
    assert len(lab.calls) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413])
def test_refusal_is_not_repeated(status: int) -> None:
    lab = build_lab()
    lab.refusal = (status, "no")
    with running_server(lab) as server, pytest.raises(RefusedError) as refused:
        build_client(server).post(CLAIM, {}, patience=30)
    assert (refused.value.status, refused.value.code) == (status, "no")
    assert len(lab.calls) == 1


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
def test_temporary_refusal_ends_only_with_the_callers_patience(status: int) -> None:
    lab = build_lab()
    lab.refusal = (status, "later")
    with running_server(lab) as server, pytest.raises(UnreachableError):
        build_client(server).post(CLAIM, {}, patience=0)


def test_waiting_ends_at_once_when_the_work_is_stopped() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(UnreachableError):
        build_client("http://127.0.0.1:9", stop=stop).post(CLAIM, {}, patience=3600)


def test_wrong_token_is_a_refusal_and_no_log_line_has_the_token() -> None:
    stream = io.StringIO()
    with running_server(build_lab()) as server, pytest.raises(RefusedError):
        build_client(server, token="tm_1_wrong", stream=stream).post(CLAIM, {}, patience=5)
    with pytest.raises(UnreachableError):
        build_client("http://127.0.0.1:9", token="tm_1_wrong", stream=stream).post(CLAIM, {}, patience=0)
    assert "server-unreachable" in stream.getvalue()
    assert "tm_1_wrong" not in stream.getvalue()


def test_artifact_with_other_bytes_than_its_name_says_is_not_kept(tmp_path: Path) -> None:
    lab = build_lab()
    lab.artifacts["a" * 64] = b"something else"
    with running_server(lab) as server, pytest.raises(InfrastructureError):
        build_client(server).fetch_artifact("a" * 64, tmp_path / "image", patience=5)
    assert list(tmp_path.iterdir()) == []


def test_artifact_comes_and_goes_unchanged(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    sha256 = hashlib.sha256(content).hexdigest()
    (tmp_path / "there").write_bytes(content)
    with running_server(build_lab()) as server:
        client = build_client(server)
        client.put_artifact(sha256, tmp_path / "there", patience=5)
        client.fetch_artifact(sha256, tmp_path / "back", patience=5)
    assert (tmp_path / "back").read_bytes() == content


def test_text_that_no_database_stores_does_not_leave_the_agent() -> None:
    lab = build_lab()
    body = {"reason": "a\0b\ud800c", "notes": [{"reason": "\udfff"}], "seconds": 1.5, "good": True}
    with running_server(lab) as server:
        build_client(server).post("attempts/session-1-1/boots/0", body, patience=5)
    clean = {"reason": "a\ufffdb\ufffdc", "notes": [{"reason": "\ufffd"}], "seconds": 1.5, "good": True}
    assert lab.boots[("session-1", 0)] == {**clean, "agent": "agent-1"}


def test_server_that_breaks_each_time_is_given_up_after_some_failures() -> None:
    lab = build_lab()
    lab.broken.add(CLAIM)
    with running_server(lab) as server, pytest.raises(FailingError):
        build_client(server).post(CLAIM, {}, patience=3600, failures=2)
    assert len(lab.calls) == 2


def test_renewed_token_is_used_by_the_next_call(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("tm_1_old")
    with running_server(build_lab()) as server:
        client = Client(
            server=server, token=file.read_text, agent="agent-1", log=Log(io.StringIO()), stop=threading.Event()
        )
        with pytest.raises(UnauthorizedError):
            client.post(CLAIM, {}, patience=5)
        file.write_text(TOKEN)
        assert client.post(CLAIM, {}, patience=5)["kind"] == "session"


def test_token_that_is_being_renewed_does_not_end_the_work() -> None:
    lab = build_lab()
    lab.refusal = (401, "not-authenticated")
    stop = threading.Event()
    with running_server(lab) as server:
        client = build_client(server, stop=stop)
        with Lease(client, "session-1-1", seconds=0.06, stop=stop, log=Log(io.StringIO())) as lease:
            end = time.monotonic() + 60
            while len(lab.calls) < 3:
                assert time.monotonic() < end, "no third heartbeat"
                time.sleep(0.01)
    assert (lease.reason, stop.is_set()) == ("", False)
