"""Each request: which threads answer it, and what of its body is read before they are asked."""

import asyncio
import io
import json
import re
from collections import Counter
from functools import partial
from typing import IO

import structlog
from django.conf import settings
from django.db import OperationalError, close_old_connections

from server.api.problems import status_of
from server.builds.storage import MAX_BYTES, check_may_collect, check_space
from server.core.access.tries import network_behind
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.lab.hosts.tokens import check_may_store, find_host_token
from server.operations.pulse import REFUSED, add_counts
from server.web import bodies, waiting
from server.web.bodies import GoneError, Receive, RefusedError, Uploads, announced, discard, read_body
from server.web.streams import PATH, Streams
from server.web.threads import BusyError, Request, Scope, Send, Threads, TornError, Wsgi, answer
from server.web.waiting import Waiters

log = structlog.get_logger(__name__)

_AGENTS = "/api/v1/agent/"
_ARTIFACTS = f"{_AGENTS}artifacts/"
_FILES = re.compile(rf"{_ARTIFACTS}|/builds/[0-9]+/files/")
# Refusals are told to all processes together, not each by itself.
_TOLD_EVERY = 1.0
_LATER, _RETRY_SECONDS = frozenset({408, 429, 503}), b"5"


class _Refusals:
    """Counts of refused uploads: what comes within a second leaves in one message, from a thread of its own."""

    def __init__(self) -> None:
        self._waiting: Counter[str] = Counter()

    def note(self, path: str, code: str) -> None:
        if not path.startswith(_AGENTS):
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(_TOLD_EVERY, self._leave)
        self._waiting[code] += 1

    def _leave(self) -> None:
        told, self._waiting = self._waiting, Counter()
        asyncio.get_running_loop().run_in_executor(None, add_counts, REFUSED, told)


class Application:
    """The service as an ASGI application around Django's WSGI one.

    Health checks, files, agents and all others have threads of their own, so that none can keep another waiting: files
    may come from a bucket that has fallen silent, and heartbeats must not.
    """

    def __init__(self, wsgi: Wsgi) -> None:
        self._wsgi = wsgi
        self._pages = Threads("pages", bodies.THREADS)
        self._agents = Threads("agents", bodies.AGENT_THREADS)
        self._files = Threads("files", bodies.AGENT_THREADS)
        self._alive = Threads("alive", 1)
        self._ready = Threads("ready", 2)
        self._streams = Streams(self._pages)
        self._waiters = Waiters(self._agents)
        self._uploads = Uploads()
        self._refusals = _Refusals()
        self.pages_answered = 0
        settings.UPLOAD_DIR.mkdir(parents=True, exist_ok=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        assert scope["type"] == "http"
        try:
            await self._answer(scope, receive, send)
        except GoneError:
            log.info("client_left", path=scope["path"])
        except RefusedError as error:
            log.warning("body_refused", path=scope["path"], code=error.code)
            self._refusals.note(scope["path"], error.code)
            await _refuse(send, error.status, error.code, error.message)
            await discard(receive)
        except BusyError:
            log.warning("too_busy", path=scope["path"])
            self._refusals.note(scope["path"], "busy")
            await _refuse(send, 503, "busy", "Too many requests wait already.")
            await discard(receive)
        except TornError:
            # The server closes the connection: the client sees that something is missing.
            log.warning("answer_torn", path=scope["path"])

    def let_go(self) -> None:
        """The process ends: who waits for something to happen waits elsewhere."""
        self._waiters.let_go()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, length = scope["path"], announced(scope["headers"])
        if length != 0 and path.startswith(_AGENTS):
            await self._take_upload(scope, receive, send, length)
            return
        body = await read_body(receive, length=length, most=bodies.FORM_BYTES, seconds=bodies.FORM_SECONDS)
        if path == PATH and scope["method"] == "GET":
            with body:
                await self._streams.answer(self._wsgi, Request(scope, body, _client(scope)), receive, send)
            return
        await self._hand_over(self._threads_for(path), scope, body, receive, send)

    async def _take_upload(self, scope: Scope, receive: Receive, send: Send, length: int | None) -> None:
        """A body for agents' addresses: nothing of it is read before the token is known, and of a file nothing that
        could not be stored.
        """
        token = await self._agents.run(partial(_token, scope), client=_client(scope))
        if token is None:
            # Django says what is wrong with the token; it needs nothing of the body for that.
            await self._hand_over(self._agents, scope, io.BytesIO(), receive, send)
            await discard(receive)
            return
        asks = scope["path"] == waiting.PATH and scope["method"] == "POST"
        largest = MAX_BYTES if _is_file(scope) else settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        with self._uploads.place(token.pk):
            body = await read_body(
                receive,
                length=length,
                most=waiting.MOST_BYTES if asks else largest,
                seconds=bodies.UPLOAD_SECONDS,
                bytes_a_second=bodies.UPLOAD_BYTES_A_SECOND,
                check=_check_disk,
            )
            if not asks:
                await self._hand_over(self._threads_for(scope["path"]), scope, body, receive, send)
                return
        # It may wait, and no other body of this host for it.
        with body:
            whose = (token.scope, token.subject)
            await self._waiters.answer(self._wsgi, Request(scope, body, _client(scope)), whose, receive, send)

    def _threads_for(self, path: str) -> Threads:
        if path in {"/healthz", "/readyz"}:
            return self._alive if path == "/healthz" else self._ready
        if _FILES.match(path):
            return self._files
        return self._agents if path.startswith(_AGENTS) else self._pages

    async def _hand_over(self, threads: Threads, scope: Scope, body: IO[bytes], receive: Receive, send: Send) -> None:
        with body:
            await answer(self._wsgi, threads, Request(scope, body, _client(scope)), receive, send)
        self.pages_answered += threads is self._pages


def _client(scope: Scope) -> str:
    said = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    return network_behind((scope.get("client") or ("",))[0], said.decode("latin-1"))


def _token(scope: Scope) -> ApiToken | None:
    """The token that the request shows, if it is a valid one; RefusedError if it may not store its file."""
    shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    kind, _, secret = shown.decode("latin-1").partition(" ")
    try:
        token = find_host_token(secret.strip()) if kind == "Bearer" else None
        if token is not None and _is_file(scope):
            check_may_store(token)
            check_may_collect(settings.UPLOAD_DIR)
    except DomainError as error:
        raise _refused(error) from None
    except OperationalError:
        raise RefusedError(503, "database-away", "The database does not answer.") from None
    finally:
        close_old_connections()
    return token


def _is_file(scope: Scope) -> bool:
    return bool(scope["method"] == "PUT" and scope["path"].startswith(_ARTIFACTS))


def _check_disk() -> None:
    """Many bodies may have begun while there was room for each of them."""
    try:
        check_space(settings.UPLOAD_DIR)
    except DomainError as error:
        raise _refused(error) from None


def _refused(error: DomainError) -> RefusedError:
    return RefusedError(status_of(error), error.code, error.message)


async def _refuse(send: Send, status: int, code: str, message: str) -> None:
    """problem+json (RFC 9457), as the API has it."""
    body = json.dumps({"type": f"urn:tidemark:{code}", "title": message, "status": status, "code": code}).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    if status in _LATER:
        headers.append((b"retry-after", _RETRY_SECONDS))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
