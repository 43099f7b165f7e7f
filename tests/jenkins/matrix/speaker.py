"""What all agents of the matrix share: they speak the protocol, and stand still where their cell holds them.

Standard library and the agent's own client only: jobs run it as a program.
"""

import io
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemark_agent.errors import AgentError, RefusedError
from tidemark_agent.log import Log
from tidemark_agent.wire.client import Client

# Longer than any cut of the network here.
_PATIENCE = 20.0
_BEAT_SECONDS = 0.7
_POLL_SECONDS = 0.1


class DeadError(Exception):
    """The machine was switched off."""


class Speaker:
    """One agent process. `alive` raises DeadError once the machine under it is gone."""

    def __init__(
        self, *, folder: Path, server: str, host: str, agent: str = "", alive: Callable[[], None] = lambda: None
    ) -> None:
        self.folder, self.host, self.alive = folder, host, alive
        self.agent = agent or uuid.uuid4().hex
        token = (folder / "tokens" / host).read_text()
        self.client = Client(
            server=server, token=lambda: token, agent=self.agent, log=Log(io.StringIO()), stop=threading.Event()
        )
        self._beaten = 0.0

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        self.alive()
        answer = self.client.post(path, body, patience=_PATIENCE)
        self.alive()
        return answer

    def claim(self, key: str, **place: Any) -> dict[str, Any] | None:
        """The assignment; None if there is nothing to do (any more)."""
        try:
            return self.post(f"attempts/{key}/claim", version="0.1.0", host=self.host, **place)
        except RefusedError:
            return None

    def hold(self, point: str, key: str = "", *, stubborn: bool = False) -> bool:
        """Stand still as long as the cell says so, beating for `key`; False when the agent is not wanted any more.

        One that is `stubborn` stands still even then.
        """
        while self._is_held(point):
            self.alive()
            if key and not self.beat(key) and not stubborn:
                return False
            time.sleep(_POLL_SECONDS)
        return not key or self.beat(key)

    def beat(self, key: str) -> bool:
        if time.monotonic() - self._beaten < _BEAT_SECONDS:
            return True
        self._beaten = time.monotonic()
        try:
            return bool(self.post(f"attempts/{key}/heartbeat", progress="working")["continue"])
        except AgentError:
            return False

    def end(self, key: str, outcome: str = "done", reason: str = "") -> None:
        self.post(f"attempts/{key}/end", outcome=outcome, reason=reason)

    def _is_held(self, point: str) -> bool:
        path = self.folder / "hold" / self.host
        try:
            return path.read_text() == point
        except FileNotFoundError:
            return False
