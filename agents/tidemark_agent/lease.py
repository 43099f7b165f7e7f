"""Holding an attempt: a thread that renews the lease and learns from the answers whether to go on."""

import threading
from typing import Self

from tidemark_agent.client import Client
from tidemark_agent.errors import RefusedError, UnauthorizedError, UnreachableError
from tidemark_agent.log import Log


class Lease:
    """Renewed every third of its time until `close`; sets `stop` when the server wants the work to end.

    A server that cannot be reached does not stop the work: results wait in the spool.
    """

    def __init__(self, client: Client, key: str, *, seconds: float, stop: threading.Event, log: Log) -> None:
        self._client = client
        self._key = key
        self._seconds = seconds
        self._stop = stop
        self._log = log
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
        """Stop the work; the first reason stands."""
        if not self.reason:
            self.reason = reason
            self.superseded = superseded
            self._log.info("attempt-stopping", reason=reason)
        self._stop.set()

    def _renew(self) -> None:
        while not self._closed.wait(self._seconds / 3):
            try:
                answer = self._client.post(
                    f"attempts/{self._key}/heartbeat", {"progress": self.progress}, patience=self._seconds / 3
                )
            except (UnreachableError, UnauthorizedError):
                continue
            except RefusedError as error:
                self.end(f"the server refused the heartbeat: {error}", superseded=True)
                return
            if answer.get("continue") is False:
                self.end("the server wants no more")
                return
