"""The agent's side of the protocol: small HTTP calls that are repeated until the server has answered."""

import hashlib
import http.client
import json
import os
import random
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from tidemark_agent.errors import (
    FailingError,
    InfrastructureError,
    RefusedError,
    UnauthorizedError,
    UnreachableError,
)
from tidemark_agent.log import Log

_TIMEOUT_SECONDS = 30
_LONGEST_PAUSE_SECONDS = 30.0
_LONGEST_ANSWER = 8 * 1024 * 1024
# Refusals that time cures: request timeout, too early, too many requests.
_TEMPORARY = frozenset({408, 425, 429})
_UNAUTHORIZED = frozenset({401, 403})
_FIRST_SERVER_ERROR = 500
# JSON can write them, yet no database stores them as text.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to wherever it points."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class _TemporaryError(Exception):
    pass


class _ServerError(_TemporaryError):
    pass


class Client:
    """Calls of one agent to one server. Usable from several threads.

    `token` is asked before each call, for tokens are renewed while agents run. `failures` of a call is how many server
    errors (5xx) it stands; without it only the patience counts.
    """

    def __init__(self, *, server: str, token: Callable[[], str], agent: str, log: Log, stop: threading.Event) -> None:
        self._base = server.rstrip("/") + "/api/v1/agent/"
        self._token = token
        self._log = log
        self._stop = stop
        self.agent = agent
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if urlsplit(server).hostname in {"127.0.0.1", "::1", "localhost"}:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def post(
        self, path: str, body: Mapping[str, Any], *, patience: float, failures: int | None = None
    ) -> dict[str, Any]:
        """Post `body`, with this agent's name added, until it is answered or `patience` (seconds) is over."""
        data = json.dumps(_storable({**body, "agent": self.agent})).encode()
        answer = self._persist("POST", path, patience, failures, data=data)
        try:
            value = json.loads(answer or b"{}")
        except ValueError as error:
            raise UnreachableError(f"POST {path}: the answer is no JSON") from error
        return value if isinstance(value, dict) else {}

    def put_artifact(self, sha256: str, source: Path, *, patience: float, failures: int | None = None) -> None:
        self._persist("PUT", f"artifacts/{sha256}", patience, failures, source=source)

    def fetch_artifact(self, sha256: str, target: Path, *, patience: float) -> None:
        """Store the artifact at `target`; nothing but bytes with this hash ever gets there."""
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        try:
            self._persist("GET", f"artifacts/{sha256}", patience, target=partial)
            with partial.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != sha256:
                raise InfrastructureError(f"the server sent {found} for artifact {sha256}")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _persist(
        self,
        method: str,
        path: str,
        patience: float,
        failures: int | None = None,
        *,
        data: bytes | None = None,
        source: Path | None = None,
        target: Path | None = None,
    ) -> bytes:
        deadline = time.monotonic() + patience
        pause = 0.5
        while True:
            try:
                return self._once(method, path, data, source, target)
            except _TemporaryError as error:
                if failures is not None and isinstance(error, _ServerError):
                    failures -= 1
                    if failures <= 0:
                        raise FailingError(f"{method} {path}: {error}") from error
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                wait = random.uniform(pause / 2, pause)  # noqa: S311 (jitter, no secret)
                self._log.warning("server-unreachable", path=path, reason=str(error), again_in=round(wait, 1))
                if time.monotonic() + wait > deadline or self._stop.wait(wait):
                    raise UnreachableError(f"{method} {path}: {error}") from error

    def _once(self, method: str, path: str, data: bytes | None, source: Path | None, target: Path | None) -> bytes:
        request = urllib.request.Request(self._base + path, method=method)  # noqa: S310 (the operator's own address)
        request.add_header("Authorization", f"Bearer {self._current_token()}")
        request.add_header("Accept", "application/json, application/problem+json, application/octet-stream")
        try:
            if source is not None:
                with source.open("rb") as stream:
                    return self._send(request, stream, source.stat().st_size, target)
            return self._send(request, data, None, target)
        except urllib.error.HTTPError as error:
            raise _sorted_error(error) from error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            raise _TemporaryError(str(error) or type(error).__name__) from error

    def _current_token(self) -> str:
        try:
            return self._token()
        except OSError as error:
            raise _TemporaryError(f"the token cannot be read: {error}") from error

    def _send(
        self, request: urllib.request.Request, body: bytes | IO[bytes] | None, size: int | None, target: Path | None
    ) -> bytes:
        if body is not None:
            request.data = body
            kind = "application/json" if isinstance(body, bytes) else "application/octet-stream"
            request.add_header("Content-Type", kind)
        if size is not None:
            request.add_header("Content-Length", str(size))
        with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            if target is None:
                return bytes(answer.read(_LONGEST_ANSWER))
            with target.open("wb") as stream:
                shutil.copyfileobj(answer, stream)
            return b""


def _sorted_error(error: urllib.error.HTTPError) -> Exception:
    code, message = "http-error", str(error.reason)
    try:
        problem = json.loads(error.read(_LONGEST_ANSWER))
        code = str(problem.get("code", code))
        message = str(problem.get("detail") or problem.get("title") or message)
    except (ValueError, AttributeError, OSError, http.client.HTTPException):
        pass  # A proxy's error page is no problem+json; the status alone decides.
    if error.code >= _FIRST_SERVER_ERROR:
        return _ServerError(f"{error.code} {code}: {message}")
    if error.code in _TEMPORARY:
        return _TemporaryError(f"{error.code} {code}: {message}")
    kind = UnauthorizedError if error.code in _UNAUTHORIZED else RefusedError
    return kind(error.code, code, message)


def _storable(value: Any) -> Any:
    """`value` with every text in it such that a database can store it: texts may come from a tested kernel."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", value)
    if isinstance(value, Mapping):
        return {_storable(name): _storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value
