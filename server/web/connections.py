"""Connections: gunicorn's event loop with an end to everything that a client may take its time over.

gunicorn waits for ever for a first request and for a reader that does not read, and takes connections without limit.
Here each of these ends, and where there are too many connections, the one that has kept the service waiting longest
goes. This module is loaded before the processes are forked: it must not load the settings, or a reload would keep them.
"""

import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Any

from gunicorn.asgi.parser import ParseError
from gunicorn.asgi.protocol import ASGIProtocol
from gunicorn.workers import gasgi

# A head is whole within this time, and a kept connection asks again within gunicorn's `keepalive`.
HEAD_SECONDS = 10.0
# So long a reader may take for each piece of an answer (64 KiB, and what the kernel holds).
READER_SECONDS = 30.0
# A body may begin with so many pieces of any size; then they have so many bytes in the mean. Each costs as much as a
# thousand times its bytes, and nobody else is served meanwhile.
ANY_PIECES = 256
PIECE_BYTES = 512

_MB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")


class ClientConnection(ASGIProtocol):  # type: ignore[misc]  # gunicorn has no types
    """One client: it has HEAD_SECONDS to ask, and READER_SECONDS for each piece of the answer."""

    worker: "Worker"

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._reading_until: asyncio.TimerHandle | None = None
        self._pieces = self._piece_bytes = 0
        self.worker.connections[self] = None
        super().connection_made(transport)
        # Cancelled by gunicorn as soon as a head is whole; from then on it arms its own between two requests.
        self._keepalive_handle = self.worker.loop.call_later(HEAD_SECONDS, self._keepalive_timeout)
        self.worker.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_patience()
        self.worker.connections.pop(self, None)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._arm_patience()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_patience()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def asks_nothing(self) -> bool:
        """Whether no whole head has come yet: nobody works for this client."""
        return bool(self._awaiting_request)

    def _on_headers_complete(self) -> bool:
        self._pieces = self._piece_bytes = 0
        return bool(super()._on_headers_complete())

    def _on_body(self, chunk: bytes) -> None:
        self._pieces += 1
        self._piece_bytes += len(chunk)
        if self._pieces > ANY_PIECES and self._piece_bytes < PIECE_BYTES * self._pieces:
            # Answered with 400, and the connection is closed.
            raise ParseError("the body comes in too many small pieces")
        super()._on_body(chunk)

    def _close_transport(self) -> None:
        # The end of an answer may still lie in the buffer of one who does not read.
        super()._close_transport()
        self._arm_patience()

    def _arm_patience(self) -> None:
        if self._reading_until is None:
            self._reading_until = self.worker.loop.call_later(READER_SECONDS, self.abort)

    def _end_patience(self) -> None:
        if self._reading_until is not None:
            self._reading_until.cancel()
            self._reading_until = None


class Worker(gasgi.ASGIWorker):  # type: ignore[misc]  # gunicorn has no types
    """A web process. It ends by itself, and is followed by a fresh one, when it has grown too large, or has answered so
    many pages as gunicorn would take requests of any kind.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alive: bool
        self.max_requests: int
        # In the order in which they came.
        self.connections: dict[ClientConnection, None] = {}
        self._recycle_mb = 0
        self._most_pages, self.max_requests = self.max_requests, sys.maxsize

    def init_process(self) -> None:
        from server.web import bodies  # noqa: PLC0415 (in the forked process, so that a reload reads it anew)

        self._recycle_mb = bodies.RECYCLE_MB
        bound_memory(bodies.MEMORY_MB)
        super().init_process()

    def make_room(self) -> None:
        """One connection too many: the oldest that asks nothing goes, else the oldest of all."""
        if len(self.connections) > self.worker_connections:
            idle = (connection for connection in self.connections if connection.asks_nothing())
            oldest = next(idle, None) or next(iter(self.connections))
            self.log.info("too many connections: the oldest goes")
            self.connections.pop(oldest)
            oldest.abort()

    def notify(self) -> None:
        """Called every second."""
        super().notify()
        if self.alive and resident_mb() > self._recycle_mb:
            self.log.warning("web process takes %d MB: another one takes its place", resident_mb())
            self.alive = False
        if self.alive and getattr(self.asgi, "pages_answered", 0) >= self._most_pages:
            self.log.info("web process has answered its pages: another one takes its place")
            self.alive = False

    async def _shutdown(self) -> None:
        # Those that ask nothing would hold the end up for the whole time that answers are given.
        for connection in [known for known in self.connections if known.asks_nothing()]:
            connection.abort()
        if hasattr(self.asgi, "let_go"):
            self.asgi.let_go()
        await super()._shutdown()


def bound_memory(most_mb: int) -> None:
    """No request gets more than the limit: it fails with MemoryError, not the host with an out-of-memory kill."""
    resource.setrlimit(resource.RLIMIT_DATA, (most_mb * _MB, most_mb * _MB))
    # Each connection is an open file, and a soft limit of 1024 is what most systems begin with.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _PAGE // _MB


# gunicorn's worker names its protocol in the middle of a long function.
gasgi.ASGIProtocol = ClientConnection
