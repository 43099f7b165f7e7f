"""Holding an attempt: a thread that renews the lease and learns from the answers whether to go on."""

import threading
from typing import Protocol, Self

from tidemark_agent.client import Client
from tidemark_agent.errors import RefusedError, StoppedError, UnauthorizedError, UnreachableError
from tidemark_agent.log import Log

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
