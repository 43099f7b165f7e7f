"""What an agent says to the service, again until it is heard, and the lease that it keeps meanwhile."""

import hashlib
import os
import random
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, Self
from urllib.parse import urlsplit

from tidemark_agent.errors import (
    FailingError,
    InfrastructureError,
    RefusedError,
    StoppedError,
    UnauthorizedError,
    UnreachableError,
)
from tidemark_agent.log import Log
from tidemark_agent.wire.transport import (
    LOOPBACK,
    Answer,
    PlainWantedError,
    ServerError,
    TemporaryError,
    build_opener,
    exchange,
    json_body,
    packed,
    packed_file,
    usable_token,
)

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
# Its own generator: other threads may count on the state of the common one.
_JITTER = random.SystemRandom()
_JSON, _BYTES = "application/json", "application/octet-stream"


class Client:
    """Calls of one agent to one server. Usable from several threads.

    `token` is asked before each call, for tokens are renewed while agents run. `failures` of a call is how many server
    errors (5xx) it stands; without it only the patience counts. Bodies are compressed once the server has said that it
    takes that (RFC 7694). `ca_file` holds certificates that are trusted beside the system's.
    """

    def __init__(
        self,
        *,
        server: str,
        token: Callable[[], str],
        agent: str,
        log: Log,
        stop: threading.Event,
        ca_file: Path | None = None,
    ) -> None:
        self._base = server.rstrip("/") + "/api/v1/agent/"
        self._token = token
        self._log = log
        self._stop = stop
        self._takes_gzip = False
        self.agent = agent
        self._opener = build_opener(server, ca_file)
        address = urlsplit(server)
        if address.scheme != "https" and address.hostname not in LOOPBACK:
            log.warning("token-goes-unencrypted", server=server)

    def post(
        self, path: str, body: Mapping[str, Any], *, patience: float, failures: int | None = None
    ) -> dict[str, Any]:
        """Post `body`, with this agent's name added, until it is answered or `patience` (seconds) is over."""
        data = json_body({**body, "agent": self.agent})

        def once() -> Answer:
            small = packed(data) if self._takes_gzip else None
            return self._send("POST", path, _JSON, small or data, gzipped=small is not None)

        return self._persist(f"POST {path}", once, patience, failures)

    def put_artifact(self, sha256: str, source: Path, *, patience: float, failures: int | None = None) -> None:
        def once() -> Answer:
            if self._takes_gzip:
                with packed_file(source) as small:
                    if small is not None:
                        return self._send("PUT", path, _BYTES, small, gzipped=True)
            with source.open("rb") as stream:
                return self._send("PUT", path, _BYTES, stream)

        path = f"artifacts/{sha256}"
        self._persist(f"PUT {path}", once, patience, failures)

    def fetch_artifact(self, sha256: str, target: Path, *, patience: float) -> None:
        """Store the artifact at `target`; nothing but bytes with this hash ever gets there."""
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")

        def once() -> Answer:
            with partial.open("wb") as stream:
                return self._send("GET", path, _BYTES, None, target=stream)

        path = f"artifacts/{sha256}"
        try:
            self._persist(f"GET {path}", once, patience, None)
            with partial.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != sha256:
                raise InfrastructureError(f"the server sent {found} for artifact {sha256}")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def _persist(self, what: str, once: Callable[[], Answer], patience: float, failures: int | None) -> dict[str, Any]:
        deadline = time.monotonic() + patience
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                answer = once()
            except PlainWantedError as error:
                if not self._takes_gzip:
                    raise FailingError(f"{what}: {error}") from error
                self._takes_gzip = False
            except TemporaryError as error:
                if failures is not None and isinstance(error, ServerError):
                    failures -= 1
                    if failures <= 0:
                        raise FailingError(f"{what}: {error}") from error
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                wait = _JITTER.uniform(pause / 2, pause)
                self._log.warning("server-unreachable", call=what, reason=str(error), again_in=round(wait, 1))
                if time.monotonic() + wait > deadline or self._stop.wait(wait):
                    raise UnreachableError(f"{what}: {error}") from error
            else:
                self._takes_gzip = answer.takes_gzip
                return answer.value

    def _send(
        self,
        method: str,
        path: str,
        kind: str,
        body: bytes | IO[bytes] | None,
        *,
        gzipped: bool = False,
        target: IO[bytes] | None = None,
    ) -> Answer:
        request = urllib.request.Request(self._base + path, method=method)  # noqa: S310 (the operator's own address)
        request.add_header("Authorization", f"Bearer {self._current_token()}")
        request.add_header("Accept", f"{_JSON}, application/problem+json, {_BYTES}")
        if body is not None:
            request.data = body
            request.add_header("Content-Type", kind)
            size = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
            request.add_header("Content-Length", str(size))
        if gzipped:
            request.add_header("Content-Encoding", "gzip")
        return exchange(self._opener, request, target)

    def _current_token(self) -> str:
        try:
            return usable_token(self._token())
        except OSError as error:
            raise TemporaryError(f"the token cannot be read: {error}") from error


# Each renewal wakes a CPU: no more often than this where the lease is long.
_LONGEST_PAUSE = 60.0
# How long a verdict waits for the answer whether anybody still wants it.
_ASKING_SECONDS = 5.0


class LogTail(Protocol):
    """Lines that the service has not seen yet."""

    def take(self) -> str: ...

    def give_back(self, piece: str) -> None: ...


class Lease:
    """Renewed every third of its time inside the `with`; sets `stop` when the server wants the work to end.

    A server that cannot be reached does not stop the work: results wait in the spool. `away_seconds` is for how long
    the machine may be silent on top, because it reboots or is cut off.
    """

    def __init__(
        self,
        client: Client,
        key: str,
        *,
        seconds: float,
        stop: threading.Event,
        log: Log,
        away_seconds: int = 0,
        tail: LogTail | None = None,
    ) -> None:
        self._client = client
        self._key = key
        # Until the server has heard of `away_seconds`, the lease is as short as it is for everybody.
        self._first_pause = seconds / 3
        self._pause = min(max(seconds, away_seconds) / 3, max(seconds / 3, _LONGEST_PAUSE))
        self._stop = stop
        self._log = log
        self._away_seconds = away_seconds
        self._tail = tail
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self.progress = ""
        self.reason = ""
        self.superseded = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._closed.set()

    def end(self, reason: str, *, superseded: bool = False) -> None:
        """Stop the work; the first reason stands, and after the `with` there is nothing to stop."""
        if self._closed.is_set():
            return
        if not self.reason:
            self.reason = reason
            self.superseded = superseded
            self._log.info("attempt-stopping", reason=reason)
        self._stop.set()

    def beat(self, patience: float) -> bool:
        """Renew the lease now; False when the work is to end."""
        piece = self._tail.take() if self._tail else ""
        body: dict[str, object] = {"progress": self.progress}
        if self._away_seconds:
            body["away_seconds"] = self._away_seconds
        if piece:
            body["log"] = piece
        try:
            answer = self._client.post(f"attempts/{self._key}/heartbeat", body, patience=patience)
        except (UnreachableError, UnauthorizedError):
            if self._tail:
                self._tail.give_back(piece)
            return True
        except RefusedError as error:
            self.end(f"the server refused the heartbeat: {error}", superseded=True)
            return False
        if answer.get("continue") is False:
            self.end("the server wants no more")
            return False
        return True

    def require(self) -> None:
        """Before a verdict against somebody's code: raise StoppedError unless the work is still wanted.

        A server that cannot be reached has stopped nothing.
        """
        if self._stop.is_set() or not self.beat(_ASKING_SECONDS):
            raise StoppedError(self.reason or "the work was ended from outside")

    def _renew(self) -> None:
        pause = self._first_pause
        while not self._closed.wait(pause):
            pause = self._pause
            if not self.beat(pause):
                return
