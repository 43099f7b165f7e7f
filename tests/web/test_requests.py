"""Requests reach Django whole, and answers reach clients whole, through the event loop and its threads."""

import asyncio
import hashlib
import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from pytest_django.fixtures import Settings

from server.builds.models import Artifact
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Session
from server.web.application import Application
from server.web.threads import BusyError, Threads
from tests.builders import build_attempt, build_build, build_builder, build_machine, build_session
from tests.web.conftest import STANDSTILL, Web

# Longer than what is held in memory of a body, and than one step of an answer.
CONTENT = os.urandom(3 * 1024 * 1024)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ADDRESS = f"/api/v1/agent/artifacts/{SHA256}"
PIECE = 100_000


@pytest.fixture
def headers(transactional_db: None) -> dict[str, str]:
    builder = build_builder(name="web-builder")
    build_attempt(build_build(), builder=builder, agent="web-agent")
    return {"Authorization": f"Bearer {issue_token(name='w', scope=ApiToken.Scope.BUILDER, subject=builder.name)}"}


@pytest.fixture
def reading(transactional_db: None) -> Callable[[str], dict[str, str]]:
    """What a machine asks with whose session needs the file of this hash."""

    def make(sha256: str) -> dict[str, str]:
        session = build_session(machine=build_machine("web-machine"), state=Session.State.RUNNING)
        build_attempt(session)
        Artifact.objects.filter(build=session.base_build).delete()
        Artifact.objects.create(build=session.base_build, kind=Artifact.Kind.IMAGE, sha256=sha256, size=len(CONTENT))
        return {"Authorization": f"Bearer {issue_token(name='m', scope=ApiToken.Scope.MACHINE, subject='web-machine')}"}

    return make


def put(web: Web, headers: dict[str, str], content: bytes = CONTENT, *, chunked: bool = False) -> httpx2.Response:
    kind = {"Content-Type": "application/octet-stream", **headers}
    pieces = (content[at : at + PIECE] for at in range(0, len(content), PIECE))
    address = f"{web.address}/api/v1/agent/artifacts/{hashlib.sha256(content).hexdigest()}"
    return httpx2.put(address, content=pieces if chunked else content, headers=kind, timeout=STANDSTILL)


@pytest.mark.parametrize("chunked", [False, True])
def test_large_body_and_large_answer_are_whole(
    web: Web, headers: dict[str, str], reading: Callable[[str], dict[str, str]], chunked: bool
) -> None:
    content = CONTENT[::-1] + bytes([chunked])
    assert put(web, headers, content, chunked=chunked).status_code == 201
    assert put(web, headers, content).status_code == 200
    sha256 = hashlib.sha256(content).hexdigest()
    address = f"{web.address}/api/v1/agent/artifacts/{sha256}"
    assert httpx2.get(address, headers=reading(sha256), timeout=STANDSTILL).content == content


def test_damaged_file_ends_before_its_length(
    web: Web, headers: dict[str, str], reading: Callable[[str], dict[str, str]]
) -> None:
    put(web, headers)
    stored = next(path for path in web.state.rglob(f"*{SHA256[8:]}*") if path.is_file())
    stored.chmod(0o600)
    stored.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    with pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(f"{web.address}{ADDRESS}", headers=reading(SHA256), timeout=STANDSTILL)


def test_sender_of_a_large_body_hears_that_his_token_is_wrong(web: Web) -> None:
    for _ in range(5):
        assert put(web, {"Authorization": "Bearer no"}).status_code == 401


@pytest.mark.parametrize("free", [[1], [3, 3, 1]])
def test_file_is_not_taken_on_a_disk_that_is_full_or_gets_full(
    headers: dict[str, str], monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path, free: list[int]
) -> None:
    settings.STATE_DIR, settings.UPLOAD_DIR = tmp_path, tmp_path / "uploads"
    room = free[1:]
    # More than is asked for, in gigabytes, as often as one file is let in; then less.
    told = (SimpleNamespace(free=number << 30) for number in (*free, *free[-1:] * 9))
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: next(told))
    seen: list[dict[str, Any]] = []
    parts = iter([{"type": "http.request", "body": bytes(1 << 20), "more_body": True}] * 16)

    async def receive() -> dict[str, Any]:
        seen.append(part := next(parts, {"type": "http.disconnect"}))
        return part

    async def send(said: MutableMapping[str, Any]) -> None:
        seen.append(dict(said))

    scope: dict[str, Any] = {"type": "http", "method": "PUT", "path": ADDRESS}
    scope["headers"] = [(b"content-length", b"500000000"), (b"authorization", headers["Authorization"].encode())]
    asyncio.run(Application(lambda *_: [])(scope, receive, send))
    # Nothing of it is read, or what came before the disk was looked at again.
    read = 16 if room else 0
    assert [said["type"] for said in seen[: read + 1]] == ["http.request"] * read + ["http.response.start"]
    assert seen[read]["status"] == 503
    assert json.loads(seen[read + 1]["body"])["code"] == "disk-full"


def test_reader_that_leaves_gives_his_place_back(web: Web, headers: dict[str, str]) -> None:
    put(web, headers)
    for _ in range(12):
        with web.connect() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            client.sendall(f"GET {ADDRESS} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
            client.recv(100)
    assert web.get("/").status_code == 200


def test_form_and_cookies_arrive(web: Web) -> None:
    with httpx2.Client(base_url=web.address, timeout=STANDSTILL) as client:
        page = client.get("/admin/login/")
        token = page.cookies["csrftoken"]
        client.cookies.set("other", "a,b")
        form = {"csrfmiddlewaretoken": token, "username": "nobody", "password": "wrong"}
        answer = client.post("/admin/login/", data=form, headers={"Referer": f"{web.address}/admin/login/"})
    assert answer.status_code == 200
    assert 'role="alert"' in answer.text


HOST = b" HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SOCKET = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"GET /healthz" + HOST, b" 200 "),
        (b"HEAD /healthz" + HOST, b" 200 "),
        (b"GET http://127.0.0.1/healthz" + HOST, b" 200 "),
        (b"GET /%ff%00%25?%ff=%00" + HOST, b" 404 "),
        (b"GET /\xff" + HOST, b" 40"),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n", b" 400 "),
        (b"POST /healthz" + HOST + b"Content-Length: 3x\r\n", b" 400 "),
        (b"POST /healthz" + HOST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b" 400 "),
        (b"GET /" + HOST + SOCKET + b"A" * 22 + b"==\r\n", b" 403 "),
        (b"GET /" + HOST + b"X: " + b"x" * 9000 + b"\r\n", b" 431 "),
    ],
)
def test_head_is_understood_or_refused(web: Web, said: bytes, answer: bytes) -> None:
    with web.connect() as client:
        client.sendall(said + b"\r\n")
        assert answer in client.recv(4096).partition(b"\r\n")[0]


def test_process_that_has_answered_enough_pages_is_followed_by_another(start_web: Callable[..., Web]) -> None:
    web = start_web("--max-requests", "10", "--max-requests-jitter", "0")
    first = children(web)
    for _ in range(20):
        # Neither of them is a page.
        assert (web.get("/healthz").status_code, web.get("/api/v1/agent/work").status_code) == (200, 401)
    assert children(web) == first
    until(lambda: web.get("/robots.txt").status_code == 200 and not children(web) & first and len(children(web)) == 1)


def test_process_that_has_grown_too_large_is_followed_by_another(start_web: Callable[..., Web]) -> None:
    # Less than a process takes that has all of its modules.
    web = start_web(TIDEMARK_WEB_RECYCLE_MB="20")
    until(lambda: "another one takes its place" in web.said())
    assert web.process.poll() is None


def test_request_that_takes_too_much_memory_fails_alone(start_web: Callable[..., Web]) -> None:
    web = start_web("tests.web.hungry:application", TIDEMARK_WEB_MEMORY_MB="512")
    assert web.get("/eat/?megabytes=10").status_code == 200
    assert web.get("/eat/?megabytes=600", 60).status_code == 500
    assert web.get("/").status_code == 200


def children(web: Web) -> set[int]:
    pid = web.process.pid
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        try:
            if condition():
                return
        except httpx2.TransportError:
            pass
        signal.sigtimedwait([], 0.1)
    raise AssertionError("it never came to that")


class Slow:
    """Work that begins, and ends when it may."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def work(self, name: str) -> str:
        self.begun.append(name)
        self.may_end.wait(STANDSTILL)
        return name

    async def until_begun(self, *names: str) -> None:
        for _ in range(2000):
            if sorted(self.begun) == sorted(names):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(self.begun)


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.may_end.set()


def test_one_client_has_half_of_the_threads_at_most(slow: Slow) -> None:
    async def flood() -> list[str]:
        threads = Threads("t", 4)
        many = [asyncio.ensure_future(threads.run(partial(slow.work, "many"), client="a")) for _ in range(24)]
        await slow.until_begun("many", "many")
        assert await threads.run(lambda: "other", client="b") == "other"
        slow.may_end.set()
        return await asyncio.gather(*many)

    assert asyncio.run(flood()) == ["many"] * 24


def test_clients_take_turns(slow: Slow) -> None:
    async def ask() -> None:
        threads = Threads("t", 1)
        asked = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("a", "a4"), ("b", "b1"), ("b", "b2"), ("c", "c1")]
        all_of = [asyncio.ensure_future(threads.run(partial(slow.work, name), client=who)) for who, name in asked]
        await slow.until_begun("a1")
        slow.may_end.set()
        await asyncio.gather(*all_of)

    asyncio.run(ask())
    assert slow.begun == ["a1", "a2", "b1", "c1", "a3", "b2", "a4"]


def test_of_a_full_queue_the_last_of_the_longest_part_gives_way(slow: Slow) -> None:
    async def fill() -> list[str | BaseException]:
        threads = Threads("t", 1, most_waiting=3)
        asked = [asyncio.ensure_future(threads.run(partial(slow.work, "a"), client="a")) for _ in range(5)]
        await slow.until_begun("a")
        asked.append(asyncio.ensure_future(threads.run(partial(slow.work, "b"), client="b")))
        await asyncio.sleep(0)
        slow.may_end.set()
        return await asyncio.gather(*asked, return_exceptions=True)

    told = asyncio.run(fill())
    assert [one if isinstance(one, str) else type(one) for one in told] == ["a", "a", "a", BusyError, BusyError, "b"]


def test_one_that_leaves_the_queue_leaves_his_turn_to_the_next(slow: Slow) -> None:
    async def leave() -> str:
        threads = Threads("t", 1)
        first = asyncio.ensure_future(threads.run(partial(slow.work, "first"), client="a"))
        leaver = asyncio.ensure_future(threads.run(partial(slow.work, "leaver"), client="b"))
        next_one = asyncio.ensure_future(threads.run(partial(slow.work, "next"), client="c"))
        await slow.until_begun("first")
        leaver.cancel()
        slow.may_end.set()
        await first
        return await next_one

    assert asyncio.run(leave()) == "next"
    assert slow.begun == ["first", "next"]


def scope_of(address: str, path: str = "/") -> dict[str, Any]:
    """A request as it comes from a proxy on this host that names whom it serves."""
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "http_version": "1.1", "client": ("127.0.0.1", 1)}
    return {**scope, "headers": [(b"x-forwarded-for", address.encode())]}


async def ask(application: Application, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """What the application sends to a client that stays."""
    parts = [{"type": "http.request", "body": b"", "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            await asyncio.Event().wait()
        return parts.pop()

    async def send(said: MutableMapping[str, Any]) -> None:
        sent.append(dict(said))

    await application(scope, receive, send)
    return sent


@pytest.fixture
def uploads(settings: Settings, tmp_path: Path) -> None:
    settings.UPLOAD_DIR = tmp_path / "uploads"


@pytest.mark.usefixtures("uploads")
def test_flood_of_one_address_behind_the_proxy_leaves_threads_for_others(slow: Slow) -> None:
    def wsgi(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/slow":
            slow.work("slow")
        start("200 OK", [])
        return [b"here"]

    async def flood() -> list[dict[str, Any]]:
        application = Application(wsgi)
        network = (f"2001:db8::{number:x}" for number in range(1, 25))
        many = [asyncio.ensure_future(ask(application, scope_of(one, "/slow"))) for one in network]
        await slow.until_begun(*["slow"] * 4)
        told = await ask(application, scope_of("2001:db8:0:1::1"))
        assert len(slow.begun) == 4
        slow.may_end.set()
        await asyncio.gather(*many)
        return told

    assert [said.get("status", said.get("body")) for said in asyncio.run(flood())] == [200, b"here"]


class Steps:
    """An answer of several pieces."""

    def __init__(self, then: Callable[[], object]) -> None:
        self._then, self.closed = then, False

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(3):
            yield bytes(600_000)
            self._then()

    def close(self) -> None:
        self.closed = True


def close_pools(application: Application) -> None:
    """As at the end of the process."""
    for threads in vars(application).values():
        if isinstance(threads, Threads):
            threads._pool.shutdown(wait=False)


@pytest.mark.usefixtures("uploads")
def test_request_at_the_end_of_the_process_is_told_to_come_again() -> None:
    application = Application(lambda *_: [])
    close_pools(application)
    start, body = asyncio.run(ask(application, scope_of("192.0.2.1")))
    assert (start["status"], dict(start["headers"])[b"retry-after"]) == (503, b"5")
    assert json.loads(body["body"])["code"] == "busy"


@pytest.mark.usefixtures("uploads")
def test_answer_that_gets_no_thread_for_its_next_piece_is_closed_and_left_unfinished() -> None:
    steps = Steps(lambda: None)

    def wsgi(_: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [])
        close_pools(application)
        return steps

    application = Application(wsgi)
    sent = asyncio.run(ask(application, scope_of("192.0.2.1")))
    assert [said["type"] for said in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1]["more_body"]
    assert steps.closed


@pytest.mark.usefixtures("uploads")
def test_work_that_outlives_the_loop_ends_quietly_and_closes_its_answer(
    slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(lambda: None)

    def wsgi(_: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        slow.work("late")
        start("200 OK", [])
        return steps

    application = Application(wsgi)

    async def leave() -> None:
        asked = asyncio.ensure_future(ask(application, scope_of("192.0.2.1")))
        await slow.until_begun("late")
        asked.cancel()

    asyncio.run(leave())
    close_pools(application)
    slow.may_end.set()
    application._pages._pool.shutdown(wait=True)
    assert steps.closed
    assert not caplog.records
