"""Whole requests in threads: the event loop reads and writes, Django answers, and neither waits for a client."""

import asyncio
import contextlib
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, TypeVar
from urllib.parse import unquote_to_bytes

from django.db import close_old_connections

from server.web.bodies import MOST_WAITING, WAITING_SECONDS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
_T = TypeVar("_T")

# How one asks a proxy, which we are not; servers must understand it all the same (RFC 9112).
_ABSOLUTE = re.compile(rb"^https?://[^/?]*", re.IGNORECASE)
# One step of a long answer: as much as this is read ahead of its reader.
_STEP = 512 * 1024


class BusyError(Exception):
    """Too many requests wait for these threads, or the process ends."""


class TornError(Exception):
    """An answer ends in its middle, for want of a thread."""


class Threads:
    """Some threads, and a queue in front of them that has an end.

    Each client has half of the threads at most, clients take turns, and of a full queue the longest part gives way:
    one that asks without pause keeps himself waiting, and nobody else. All but the work is the event loop's.
    """

    def __init__(self, name: str, count: int, most_waiting: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._count, self._share = count, max(2, count // 2)
        self._most = most_waiting
        self._working: Counter[str] = Counter()
        # Whoever is first here has the next turn. With a free thread, all of them have their share already.
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}

    async def run(self, work: Callable[[], _T], *, client: str, late: Callable[[_T], object] = lambda _: None) -> _T:
        """What `work` gives. Where the one who asked is gone by then, `late` gets it instead, on the same threads."""
        await self._turn(client)
        loop = asyncio.get_running_loop()
        try:
            job = self._pool.submit(work)
        except RuntimeError:
            self._give_back(client)
            raise BusyError from None
        job.add_done_callback(lambda _: _tell(loop, partial(self._give_back, client)))
        try:
            return await _result(job)
        except asyncio.CancelledError:
            job.add_done_callback(partial(self._too_late, late))
            raise

    async def finish(self, work: Callable[[], object]) -> None:
        """Do what ends something: it is short, has to be done, and waits for nobody's turn."""
        try:
            job = self._pool.submit(work)
        except RuntimeError:
            work()
        else:
            await _result(job)

    async def _turn(self, client: str) -> None:
        """Take a thread of this client's share."""
        if self._working.total() < self._count and self._working[client] < self._share:
            self._working[client] += 1
            return
        self._make_room(client)
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(client, {})[turn] = None
        patience = loop.call_later(WAITING_SECONDS, _refuse, turn)
        try:
            await turn
        except asyncio.CancelledError:
            # It may have got its thread at the same moment.
            if not turn.cancelled() and turn.exception() is None:
                self._give_back(client)
            raise
        finally:
            patience.cancel()
            self._leave(client, turn)

    def _make_room(self, client: str) -> None:
        if sum(map(len, self._waiting.values())) < self._most:
            return
        longest = max(self._waiting, key=lambda known: len(self._waiting[known]), default=client)
        if len(self._waiting.get(longest, ())) <= len(self._waiting.get(client, ())) + 1:
            raise BusyError
        last = next(reversed(self._waiting[longest]))
        _refuse(last)
        self._leave(longest, last)

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        queue = self._waiting.get(client, {})
        queue.pop(turn, None)
        if not queue:
            self._waiting.pop(client, None)

    def _give_back(self, client: str) -> None:
        self._working[client] -= 1
        self._working += Counter()
        while self._working.total() < self._count:
            following = next((known for known in self._waiting if self._working[known] < self._share), None)
            if following is None:
                return
            queue = self._waiting.pop(following)
            turn = next(iter(queue))
            del queue[turn]
            if queue:
                self._waiting[following] = queue
            if not turn.done():
                self._working[following] += 1
                turn.set_result(None)

    def _too_late(self, late: Callable[[_T], object], job: Future[_T]) -> None:
        if job.exception() is not None:
            return
        try:
            self._pool.submit(late, job.result())
        except RuntimeError:
            late(job.result())


def _refuse(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_exception(BusyError())


async def _result(job: Future[_T]) -> _T:
    """Like asyncio.wrap_future, but whoever stops waiting does not call the work off, and the loop may have ended."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not done.done():
            done.set_result(None)

    job.add_done_callback(lambda _: _tell(loop, end))
    await done
    return job.result()


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], object]) -> None:
    # A loop that is closed has nobody who waits: the process ends.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(what)


@dataclass
class BegunAnswer:
    """One answer of Django on its way: what was read of it, and where the rest comes from."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    piece: bytes = b""
    source: Any = None
    rest: Iterator[bytes] | None = None
    # A client that leaves ends the answer while a thread may still read of it.
    _reading: threading.RLock = field(default_factory=threading.RLock)

    def start(self, status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], None]:
        self.status = int(status.split(" ", 1)[0])
        self.headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return lambda _: None

    def step(self) -> "BegunAnswer":
        """Read the next piece; at the end close the answer, which gives its connection to the database back."""
        with self._reading:
            try:
                self.piece = b"".join(self._chunks())
            except BaseException:
                self.close()
                raise
            finally:
                # The next step may be another thread's: none keeps a connection in between.
                close_old_connections()
        return self

    def _chunks(self) -> Iterator[bytes]:
        size = 0
        for chunk in self.rest or ():
            yield chunk
            size += len(chunk)
            if size >= _STEP:
                return
        self.close()

    def close(self) -> None:
        with self._reading:
            self.rest = None
            source, self.source = self.source, None
            if hasattr(source, "close"):
                source.close()


class _File:
    """wsgi.file_wrapper with pieces worth a step of their own."""

    def __init__(self, file: IO[bytes], _size: int = 0) -> None:
        self._file = file
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        return iter(partial(self._file.read, _STEP), b"")


@dataclass(frozen=True)
class Request:
    """A request whose body is whole, and whose it is: the network its address stands for."""

    scope: Scope
    body: IO[bytes]
    client: str


async def answer(wsgi: Wsgi, threads: Threads, request: Request, receive: Receive, send: Send) -> None:
    """Let Django answer on one of `threads`, and send what it says; BusyError before anything is sent, or TornError."""
    given = await threads.run(partial(begin, wsgi, request), client=request.client, late=BegunAnswer.close)
    try:
        await send({"type": "http.response.start", "status": given.status, "headers": given.headers})
        if given.rest is not None:
            await _send_pieces(given, threads, request.client, receive, send)
        await send({"type": "http.response.body", "body": given.piece})
    except BusyError:
        raise TornError from None
    finally:
        if given.rest is not None:
            await threads.finish(given.close)


async def _send_pieces(given: BegunAnswer, threads: Threads, client: str, receive: Receive, send: Send) -> None:
    """All but the last, as long as somebody is there who takes them."""
    gone = asyncio.ensure_future(left(receive))
    try:
        while given.rest is not None and not gone.done():
            await send({"type": "http.response.body", "body": given.piece, "more_body": True})
            await threads.run(given.step, client=client, late=BegunAnswer.close)
    finally:
        gone.cancel()


async def left(receive: Receive) -> None:
    """Ends when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def begin(wsgi: Wsgi, request: Request) -> BegunAnswer:
    """Django's answer with its first piece; of a short one that is all."""
    given = BegunAnswer()
    given.source = wsgi(_environ(request.scope, request.body), given.start)
    given.rest = iter(given.source)
    return given.step()


def _environ(scope: Scope, body: IO[bytes]) -> dict[str, Any]:
    """The request as WSGI (PEP 3333) has it."""
    server, client = scope.get("server") or ("localhost", 80), scope.get("client") or ("", 0)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(_ABSOLUTE.sub(b"", scope["raw_path"])).decode("latin-1") or "/",
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "REMOTE_ADDR": client[0],
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": _File,
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").upper().replace("-", "_"), raw_value.decode("latin-1")
        key = name if name == "CONTENT_TYPE" else f"HTTP_{name}"
        joint = "; " if name == "COOKIE" else ","
        environ[key] = f"{environ[key]}{joint}{value}" if key in environ else value
    # What was read, however it came: Django takes a body without a length for an empty one.
    for name in ("HTTP_CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"):
        environ.pop(name, None)
    environ["CONTENT_LENGTH"] = str(body.seek(0, os.SEEK_END))
    body.seek(0)
    return environ
