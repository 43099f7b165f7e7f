"""What every simulated agent says to the service (docs/agent-protocol.md), whichever way it travels."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

VERSION = "0.1.0"


class RefusedError(Exception):
    """The service said no."""


class Transport(Protocol):
    """How an agent reaches the service. Both raise RefusedError for answers of 400 to 499."""

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...

    def put(self, sha256: str, content: bytes) -> None: ...

    def get(self, sha256: str) -> bytes: ...


@dataclass(frozen=True)
class Agent:
    """What every agent does first and last."""

    transport: Transport
    host: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def say(self, path: str, **body: Any) -> dict[str, Any]:
        return self.transport.post(path, {"agent": self.name, **body})

    def claim(self, key: str, *, boots_itself: bool) -> dict[str, Any] | None:
        """The assignment; None when the attempt is over or somebody else's."""
        program = {"version": VERSION, "host": self.host}
        try:
            if boots_itself:
                self.say(f"attempts/{key}/arrive", **program)
            return self.say(f"attempts/{key}/claim", **program)
        except RefusedError:
            return None

    def end(self, key: str, *, wanted: bool) -> None:
        self.say(f"attempts/{key}/end", outcome="done" if wanted else "failed", reason="" if wanted else "not wanted")
