"""Whoever takes his time keeps nobody waiting: more slow clients than there are threads, and the service answers."""

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Builder
from server.web import bodies
from tests.builders import build_builder, build_machine
from tests.web.conftest import STANDSTILL, Web

# More than a process has threads of any kind.
CLIENTS = 40
_BODY = "Content-Type: application/json\r\nContent-Length: 15000000\r\n"
_WRONG = f"tm_{'0' * 12}_{'x' * 40}"


@pytest.fixture
def token(transactional_db: None) -> str:
    builder = build_builder(name="slow-builder")
    return issue_token(name="slow", scope=ApiToken.Scope.BUILDER, subject=builder.name)


@pytest.fixture
def slow(web: Web) -> Iterator[Callable[[str], list[socket.socket]]]:
    """Clients that send `said`, and nothing more."""
    with ExitStack() as stack:

        def start(said: str) -> list[socket.socket]:
            clients = [stack.enter_context(web.connect()) for _ in range(CLIENTS)]
            for client in clients:
                client.sendall(said.encode())
            return clients

        yield start


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("", id="nothing"),
        pytest.param("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", id="half a head"),
        pytest.param(f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\n{_BODY}\r\n{{", id="body, no token"),
        pytest.param(
            f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {_WRONG}\r\n{_BODY}\r\n{{",
            id="body, wrong token",
        ),
        pytest.param(
            "POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            "Content-Length: 100000\r\n\r\nusername=",
            id="form",
        ),
        pytest.param(
            "POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nusern",
            id="chunks",
        ),
    ],
)
def test_slow_strangers_keep_nobody_waiting(web: Web, slow: Callable[[str], list[socket.socket]], said: str) -> None:
    slow(said)
    assert web.get("/healthz").status_code == 200
    assert web.get("/").status_code == 200
    assert web.get("/readyz").status_code in {200, 503}


def test_slow_bodies_with_a_token_keep_neither_people_nor_agents_waiting(
    web: Web, slow: Callable[[str], list[socket.socket]], token: str
) -> None:
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    slow(f"POST /api/v1/agent/hello HTTP/1.1\r\n{head}{_BODY}\r\n{{")
    assert web.get("/").status_code == 200
    other = issue_token(name="other", scope=ApiToken.Scope.BUILDER, subject="slow-builder")
    answer = ask(web, f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {other}\r\n"
                      "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")  # fmt: skip
    assert answer.startswith(b"HTTP/1.1 400 ")


CHUNKED = "Host: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("path", ["/admin/login/", "/api/v1/agent/hello"])
def test_body_in_pieces_of_a_byte_is_refused(web: Web, path: str) -> None:
    """A chunk of one byte costs the process as much as one of 64 KB, and all connections share its loop."""
    with web.connect() as client:
        client.sendall(f"POST {path} HTTP/1.1\r\n{CHUNKED}".encode() + b"1\r\na\r\n" * 1000)
        said = b""
        with suppress(ConnectionError):
            while piece := client.recv(65536):
                said += piece
    assert b"HTTP/1.1 400 " in said or said.startswith(b"HTTP/1.1 401 ")


def test_body_in_many_pieces_of_some_size_is_read(web: Web) -> None:
    head = f"POST /admin/login/ HTTP/1.1\r\nConnection: close\r\n{CHUNKED}"
    pieces = b"%x\r\n" % 600 + b"a" * 600 + b"\r\n"
    with web.connect() as client:
        client.sendall(head.encode() + pieces * 1000 + b"0\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 403"


def test_readers_that_do_not_read_keep_nobody_waiting(web: Web) -> None:
    with ExitStack() as stack:
        for _ in range(CLIENTS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", web.port))
            client.sendall(b"GET /api/v1/schema/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20)
        assert web.get("/").status_code == 200


def test_one_token_has_no_more_bodies_on_their_way_than_its_share(
    web: Web, slow: Callable[[str], list[socket.socket]], token: str
) -> None:
    head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{_BODY}"
    clients = slow(f"POST /api/v1/agent/hello HTTP/1.1\r\n{head}\r\n{{")
    # Which of them have their place is nobody's choice: they arrive together.
    told: set[socket.socket] = set()
    while len(told) < CLIENTS - bodies.UPLOADS_OF_ONE:
        ready, _, _ = select.select([client for client in clients if client not in told], [], [], STANDSTILL)
        assert ready, f"only {len(told)} were told anything"
        told |= set(ready)
    assert {client.recv(12) for client in told} == {b"HTTP/1.1 429"}


def test_wrong_token_is_refused_before_the_body_is_there(web: Web) -> None:
    head = f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer no\r\n{_BODY}\r\n"
    assert ask(web, head).startswith(b"HTTP/1.1 401 ")


def test_token_whose_host_is_gone_is_refused_before_the_body_is_there(web: Web, token: str) -> None:
    head = f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n{_BODY}\r\n"
    Builder.objects.update(health=Builder.Health.RETIRED)
    assert ask(web, head).startswith(b"HTTP/1.1 401 ")


def test_file_that_its_sender_may_not_store_is_refused_before_it_is_there(web: Web, token: str) -> None:
    head = f"PUT /api/v1/agent/artifacts/{'a' * 64} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500000000\r\n"
    machine = issue_token(name="m", scope=ApiToken.Scope.MACHINE, subject=build_machine("slow-machine").name)
    said = ask(web, f"{head}Authorization: Bearer {machine}\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"application/problem+json" in said
    assert ask(web, f"{head}Authorization: Bearer {token}\r\n\r\n").startswith(b"HTTP/1.1 409 "), "none is awaited"
    # Other methods store nothing, and get no room for a file.
    got = head.replace("PUT", "POST", 1) + f"Authorization: Bearer {machine}\r\n\r\n"
    assert ask(web, got).startswith(b"HTTP/1.1 413 ")


def test_body_larger_than_its_place_takes_is_refused_before_it_is_there(web: Web, token: str) -> None:
    form = f"POST /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{_BODY}\r\n"
    assert ask(web, form).startswith(b"HTTP/1.1 413 ")
    head = f"POST /api/v1/agent/hello HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    assert ask(web, f"{head}Content-Length: 999999999999\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_head_that_does_not_end_loses_its_connection(web: Web) -> None:
    with web.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\n")
        assert client.recv(1) == b""


def test_connections_beyond_the_limit_take_the_place_of_the_oldest_that_ask_nothing(
    start_web: Callable[..., Web],
) -> None:
    web = start_web("--worker-connections", "20")
    with ExitStack() as stack:
        clients = [stack.enter_context(web.connect()) for _ in range(60)]
        assert web.get("/healthz").status_code == 200
        assert clients[0].recv(1) == b""
        clients[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            clients[-1].recv(1)


def ask(web: Web, said: str) -> bytes:
    with web.connect() as client:
        client.sendall(said.encode())
        return client.recv(4096)
