"""The service as the session engine sees it: lease, spool, and what is live."""

import sys
import threading
from collections.abc import Mapping
from typing import Any

from tidemark_agent.errors import RefusedError, StoppedError, UnauthorizedError, UnreachableError
from tidemark_agent.lab.engine import SupersededError
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import Assignment
from tidemark_agent.wire.client import Client, Lease
from tidemark_agent.wire.host import Place, place_here
from tidemark_agent.wire.spool import Spool

# What the service keeps of one attempt.
_MOST_CHARACTERS = 64 * 1024
_PIECE_CHARACTERS = 16 * 1024


class LiveLog:
    """A stream for `Log` that passes on to stderr and keeps what no heartbeat has carried yet."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = ""

    def write(self, text: str) -> int:
        with self._lock:
            self._waiting = (self._waiting + text)[-_MOST_CHARACTERS:]
        sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def take(self) -> str:
        """The next piece to send."""
        with self._lock:
            piece, self._waiting = self._waiting[:_PIECE_CHARACTERS], self._waiting[_PIECE_CHARACTERS:]
        return piece

    def give_back(self, piece: str) -> None:
        """It did not arrive: it goes first next time."""
        with self._lock:
            self._waiting = (piece + self._waiting)[-_MOST_CHARACTERS:]


_CLAIM_PATIENCE = 600.0
_LAST_PATIENCE = 600.0
_START_PATIENCE = 15.0
_GOODBYE_PATIENCE = 10.0
_CONFLICT = 409
_LONGEST_REASON = 500


class Uplink:
    """One attempt's calls; `client` speaks as the agent that claimed it, through all reboots."""

    def __init__(
        self,
        *,
        key: str,
        client: Client,
        spool: Spool,
        log: Log,
        stop: threading.Event,
        away_seconds: int = 0,
        live: LiveLog | None = None,
        place: Place | None = None,
        patience: float = _START_PATIENCE,
    ) -> None:
        self._key = key
        self._place = place or place_here()
        self._client = client
        self._spool = spool
        self._away_seconds = away_seconds
        self._live = live
        self._log = log
        self._stop = stop
        self._patience = patience
        self.lease: Lease | None = None

    def claim(self) -> Mapping[str, Any]:
        # What waits goes first: the service then does not plan those boots again.
        self._spool.upload(self._client, patience=_CLAIM_PATIENCE, all_at_once=True)
        return self._post("claim", self._place.body(), patience=_CLAIM_PATIENCE)

    def hold(self, assignment: Assignment) -> None:
        if self.lease is None:
            self.lease = Lease(
                self._client,
                self._key,
                seconds=assignment.lease_seconds,
                stop=self._stop,
                log=self._log,
                away_seconds=self._away_seconds,
                tail=self._live,
            )
            self.lease.__enter__()

    def is_wanted(self, position: int) -> bool:
        try:
            answer = self._post(f"boots/{position}/start", {}, patience=self._patience)
        except (UnreachableError, UnauthorizedError):
            return True
        except RefusedError as error:
            # Asking again cannot help, and a machine must not stay in a test kernel because of it.
            raise SupersededError(str(error)) from error
        return answer.get("continue") is not False

    def tell(self, progress: str) -> None:
        if self.lease is not None:
            self.lease.progress = progress

    def announce_reboot(self) -> None:
        if self.lease is not None and not self.lease.beat(_GOODBYE_PATIENCE):
            raise StoppedError(self.lease.reason)

    def trouble(self) -> str:
        return self._spool.trouble()

    def store(self, position: int, body: Mapping[str, Any]) -> None:
        path = self._path(f"boots/{position}")
        if not any(item.path == path for item in self._spool.items()):
            self._spool.put(path, dict(body))

    def deliver(self) -> bool:
        try:
            sent = self._spool.upload(self._client, patience=self._patience)
        except UnreachableError:
            return True
        mine = [item for item in sent if item.path.startswith(self._path("boots/"))]
        return not any(item.answer.get("continue") is False for item in mine)

    def end(self, outcome: str, reason: str) -> None:
        try:
            self._spool.upload(self._client, patience=_LAST_PATIENCE)
            refusal = self._spool.refusal(self._path(""))
            if refusal:
                # Else the boot would be measured again and again, and nobody told why.
                outcome, reason = "failed", reason or refusal
            self._post("end", {"outcome": outcome, "reason": reason[:_LONGEST_REASON]}, patience=_LAST_PATIENCE)
        except (RefusedError, UnreachableError, SupersededError) as error:
            self._log.warning("end-not-heard", reason=str(error))

    def release(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.__exit__()
            if lease.reason:
                # It was the lease that stopped the work; what is left to do is not to be stopped by it.
                self._stop.clear()

    def _post(self, call: str, body: Mapping[str, Any], *, patience: float) -> Mapping[str, Any]:
        try:
            return self._client.post(self._path(call), body, patience=patience)
        except RefusedError as error:
            if error.status == _CONFLICT:
                raise SupersededError(str(error)) from error
            raise

    def _path(self, call: str) -> str:
        return f"attempts/{self._key}/{call}"
