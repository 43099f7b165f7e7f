"""Whole requests in threads: the event loop reads and writes, Django answers, and neither waits for a client."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, TypeVar
from urllib.parse import unquote_to_bytes

from django.db import close_old_connections

from server.web.limits import MOST_WAITING, WAITING_SECONDS

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
    """Too many requests wait for these threads."""


class Threads:
    """Some threads, and a queue in front of them that has an end."""

    def __init__(self, name: str, count: int, most_waiting: int = MOST_WAITING) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._most = count + most_waiting
        self._taken = 0

    async def run(self, work: Callable[[], _T], *, late: Callable[[_T], object] = lambda _: None) -> _T:
        """What `work` gives. Where the one who asked is gone by then, `late` gets it instead, on the same threads."""
        if self._taken >= self._most:
            raise BusyError
        self._taken += 1
        loop = asyncio.get_running_loop()
        job = self._pool.submit(work)
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(self._give_back))
        # Only what has not begun can be called off.
        patience = loop.call_later(WAITING_SECONDS, job.cancel)
        try:
            return await asyncio.shield(asyncio.wrap_future(job))
        except asyncio.CancelledError:
            if job.cancelled():
                raise BusyError from None
            job.add_done_callback(partial(self._too_late, late))
            raise
        finally:
            patience.cancel()

    def _give_back(self) -> None:
        self._taken -= 1

    def _too_late(self, late: Callable[[_T], object], job: Future[_T]) -> None:
        if job.exception() is None:
            self._pool.submit(late, job.result())


@dataclass
class _Answer:
    """One answer of Django on its way: what was read of it, and where the rest comes from."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    piece: bytes = b""
    source: Any = None
    rest: Iterator[bytes] | None = None

    def start(self, status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], None]:
        self.status = int(status.split(" ", 1)[0])
        self.headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        return lambda _: None

    def step(self) -> "_Answer":
        """Read the next piece; at the end close the answer, which gives its connection to the database back."""
        assert self.rest is not None
        read: list[bytes] = []
        size = 0
        try:
            for chunk in self.rest:
                read.append(chunk)
                size += len(chunk)
                if size >= _STEP:
                    break
            else:
                self.close()
        except BaseException:
            self.close()
            raise
        finally:
            # The next step may be another thread's: none keeps a connection in between.
            close_old_connections()
        self.piece = b"".join(read)
        return self

    def close(self) -> None:
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
    """A request whose body is whole."""

    scope: Scope
    body: IO[bytes]


async def answer(wsgi: Wsgi, threads: Threads, request: Request, receive: Receive, send: Send) -> None:
    """Let Django answer on one of `threads`, and send what it says."""
    given = await threads.run(partial(_begin, wsgi, request), late=_Answer.close)
    await send({"type": "http.response.start", "status": given.status, "headers": given.headers})
    if given.rest is None:
        await send({"type": "http.response.body", "body": given.piece})
        return
    left = asyncio.ensure_future(_left(receive))
    try:
        while given.rest is not None and not left.done():
            await send({"type": "http.response.body", "body": given.piece, "more_body": True})
            given = await threads.run(given.step, late=_Answer.close)
        await send({"type": "http.response.body", "body": given.piece})
    finally:
        left.cancel()
        if given.rest is not None:
            await threads.run(given.close)


async def _left(receive: Receive) -> None:
    """Ends when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _begin(wsgi: Wsgi, request: Request) -> _Answer:
    given = _Answer()
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
