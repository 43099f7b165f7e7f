"""What the client makes of every kind of answer, given by a real server byte for byte."""

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from tidemark_agent.errors import FailingError, RefusedError, UnauthorizedError, UnreachableError
from tidemark_agent.wire import transport

from tests.agent.test_client import build_client

PATH = "attempts/session-1-1/claim"
HTML = b"<html><h1>Sign in to the network</h1></html>"
PROBLEM = b'{"type": "x", "title": "no", "status": 409, "code": "superseded"}'


def answer(
    status: str, body: bytes = b"", *, kind: str = "application/json", size: int | None = None, more: str = ""
) -> bytes:
    length = len(body) if size is None else size
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n"
    return head.encode() + body


def problem(status: str) -> bytes:
    return answer(status, PROBLEM, kind="application/problem+json")


@dataclass(frozen=True)
class Case:
    """An answer, what it must become, and words that must stand in the reason."""

    name: str
    said: bytes
    error: type[Exception]
    words: str


CASES = [
    Case("401", problem("401 Unauthorized"), UnauthorizedError, "401 superseded"),
    Case("403 of a proxy", answer("403 Forbidden", HTML, kind="text/html"), UnauthorizedError, "403"),
    Case("409", problem("409 Conflict"), RefusedError, "409 superseded: no"),
    Case("409 of a proxy", answer("409 Conflict", HTML, kind="text/html"), FailingError, "not the service's own"),
    Case("404 of another service", answer("404 Not Found", b"{}"), FailingError, "not the service's own"),
    Case("413 of a proxy", answer("413 Too Large", HTML, kind="text/html"), FailingError, "413"),
    Case("415 for a plain body", problem("415 Unsupported Media Type"), FailingError, "415"),
    Case("500", problem("500 Internal Server Error"), FailingError, "500 superseded"),
    Case("500 as a list", answer("500 Internal Server Error", b"[1]"), FailingError, "500"),
    Case("502 as HTML", answer("502 Bad Gateway", HTML, kind="text/html"), FailingError, "502"),
    Case("garbage", answer("200 OK", b"\x00\xff{{{"), FailingError, "no JSON"),
    Case("sign-in page", answer("200 OK", HTML, kind="text/html"), FailingError, "Sign in"),
    Case("a number", answer("200 OK", b"7"), FailingError, "no JSON object"),
    Case("nothing", answer("200 OK"), FailingError, "no JSON"),
    Case("deeply nested", answer("200 OK", b"[" * 100_000), FailingError, "no JSON"),
    Case("truncated", answer("200 OK", b'{"kind": "sess', size=400), UnreachableError, "386 bytes are missing"),
    Case("truncated head", b"HTTP/1.1 200 OK\r\nContent-Le", FailingError, "no JSON"),
    Case("not HTTP", b"SSH-2.0-OpenSSH_9.2\r\n", UnreachableError, ""),
    Case("closed", b"", UnreachableError, ""),
    Case("redirect", answer("302 Found", more="Location: http://elsewhere.example/\r\n"), FailingError, "elsewhere"),
    Case("redirect to nowhere", answer("301 Moved"), FailingError, "nowhere"),
    Case("429", problem("429 Too Many Requests"), UnreachableError, "429"),
]


@contextmanager
def raw_server(speak: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that lets `speak` answer each connection after it has read the request's head."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                try:
                    read_request(connection)
                    speak(connection)
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def read_request(connection: socket.socket) -> None:
    """All of a small request: closing a connection with unread bytes would reset it under the answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    while len(body) < size:
        body += connection.recv(65536)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_answer_becomes_its_kind_of_error_with_a_reason(case: Case) -> None:
    with raw_server(lambda connection: connection.sendall(case.said)) as server, pytest.raises(case.error) as raised:
        build_client(server).post(PATH, {}, patience=0.4, failures=1)
    assert type(raised.value) is case.error
    assert case.words in str(raised.value)


def test_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_LONGEST_ANSWER", 100_000)

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(b" " * 65536)

    with raw_server(speak) as server, pytest.raises(FailingError, match="larger than 100000 bytes"):
        build_client(server).post(PATH, {}, patience=5, failures=1)


def test_answer_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MOST_SECONDS", 0.3)

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            connection.sendall(b" ")
            time.sleep(0.02)

    with raw_server(speak) as server, pytest.raises(UnreachableError, match="too slowly"):
        build_client(server).post(PATH, {}, patience=0.4)


def test_refusal_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "_MOST_SECONDS", 0.3)

    def speak(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.02)

    started = time.monotonic()
    with raw_server(speak) as server, pytest.raises(FailingError, match="500"):
        build_client(server).post(PATH, {}, patience=0.4, failures=1)
    assert time.monotonic() - started < 2


def test_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "TIMEOUT_SECONDS", 0.2)
    with raw_server(lambda _: time.sleep(0.6)) as server, pytest.raises(UnreachableError, match="timed out"):
        build_client(server).post(PATH, {}, patience=0.3)


def test_kind_of_content_does_not_matter_when_it_is_the_right_content() -> None:
    said = answer("200 OK", b'{"continue": true}', kind="text/html")
    with raw_server(lambda connection: connection.sendall(said)) as server:
        assert build_client(server).post(PATH, {}, patience=5) == {"continue": True}


@pytest.mark.parametrize("token", ["", "  \n", "tm_1\r\nX-Evil: 1", "tm 1", "t\u00f6ken", "x" * 5000])
def test_token_file_without_a_token_is_waited_for(token: str) -> None:
    with pytest.raises(UnreachableError, match="holds no token"):
        build_client("http://127.0.0.1:9", token=token).post(PATH, {}, patience=0.1)


def test_unencrypted_server_elsewhere_is_warned_about() -> None:
    stream = io.StringIO()
    for server in ("http://tidemark.example.org", "http://127.0.0.1:8000", "https://tidemark.example.org"):
        build_client(server, stream=stream)
    assert stream.getvalue().count("token-goes-unencrypted") == 1
