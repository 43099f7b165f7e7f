"""What one client may take of a web process, and bodies that are read within that."""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import IO, Any

from django.conf import settings

from server.builds.storage import LOOKED_EVERY

# Forms of people, and whatever strangers send: read within this time, and never larger.
FORM_SECONDS = 20.0
FORM_BYTES = 1024 * 1024
# Bodies of agents, of whom the token is known before the first byte is read: so much time, and more for what has come.
UPLOAD_SECONDS = 20.0
UPLOAD_BYTES_A_SECOND = 16 * 1024
# Bodies that are on their way at once: of one token, and of all.
UPLOADS_OF_ONE = 4
UPLOADS_OF_ALL = 32
# After an answer that came before the body was read: so long and so much of the rest is taken and dropped, for whoever
# is still sending reads no answer, and a connection closed on unread bytes is reset.
DISCARD_SECONDS = 5.0
DISCARD_BYTES = 8 * 1024 * 1024
# Pieces that are there already are taken without a pause; after so many others have their turn.
PIECES_AT_ONCE = 16

# Whole requests that wait for a thread, and how long; another one is told to come again.
MOST_WAITING = 256
WAITING_SECONDS = 10.0

THREADS: int = settings.WEB_THREADS
AGENT_THREADS: int = max(2, settings.WEB_THREADS // 2)
RECYCLE_MB: int = settings.WEB_RECYCLE_MB
MEMORY_MB: int = settings.WEB_MEMORY_MB


Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Longer ones go through a file: a kernel image is never held in memory.
_IN_MEMORY = 256 * 1024
_LENGTH = re.compile(rb"[0-9]{1,18}")


class RefusedError(Exception):
    """The body is not read to its end; `status` and `code` tell the client why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class GoneError(Exception):
    """The client went away in the middle of its body."""


def announced(headers: list[tuple[bytes, bytes]]) -> int | None:
    """How many bytes the body will have; None where only its end will tell."""
    given = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in given:
        return None
    length = given.get(b"content-length", b"0")
    # The server in front has read the same header: it is a number, or the request never came here.
    return int(length) if _LENGTH.fullmatch(length) else 0


async def read_body(
    receive: Receive,
    *,
    length: int | None,
    most: int,
    seconds: float,
    bytes_a_second: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> IO[bytes]:
    """The whole body, at its beginning. It may take `seconds`, and longer for what came at `bytes_a_second`.

    `check` is asked now and then while it grows, and may raise RefusedError.
    """
    if length is not None and length > most:
        raise RefusedError(413, "too-large", f"the body is larger than {most} bytes")
    body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY, dir=str(settings.UPLOAD_DIR))  # noqa: SIM115 (the caller's)
    loop = asyncio.get_running_loop()
    started, size, checked, pieces, more = loop.time(), 0, 0, 0, True
    try:
        while more:
            pieces += 1
            if pieces % PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
            until = started + seconds + (size / bytes_a_second if bytes_a_second else 0)
            async with asyncio.timeout_at(until):
                message = await receive()
            if message["type"] != "http.request":
                raise GoneError
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > most:
                raise RefusedError(413, "too-large", f"the body is larger than {most} bytes")
            if size - checked >= LOOKED_EVERY:
                checked = size
                check()
            # A few hundred kilobytes at most, into the page cache.
            body.write(chunk)
            more = message.get("more_body", False)
    except TimeoutError:
        body.close()
        raise RefusedError(408, "too-slow", "the body came too slowly") from None
    except BaseException:
        body.close()
        raise
    body.seek(0)
    return body


async def discard(receive: Receive) -> None:
    """Take what still comes, for a short while, and drop it."""
    size = pieces = 0
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            message = await receive()
            while message["type"] == "http.request" and message.get("more_body", False) and size < DISCARD_BYTES:
                size += len(message.get("body", b""))
                pieces += 1
                if pieces % PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
                message = await receive()
    except TimeoutError:
        pass


class Uploads:
    """How many bodies of agents are on their way. One token cannot take what all share."""

    def __init__(self) -> None:
        self._of: Counter[int] = Counter()

    @contextmanager
    def place(self, token: int) -> Iterator[None]:
        if self._of[token] >= UPLOADS_OF_ONE or self._of.total() >= UPLOADS_OF_ALL:
            raise RefusedError(429, "too-many-uploads", "too many bodies are on their way already")
        self._of[token] += 1
        try:
            yield
        finally:
            self._of[token] -= 1
            self._of += Counter()
