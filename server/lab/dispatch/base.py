"""The port through which work reaches machines. Adapters: local (this host), later Jenkins."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from server.core.errors import DomainError


class Observed(enum.Enum):
    """What the outside says about an attempt."""

    ABSENT = "absent"
    ALIVE = "alive"
    ENDED = "ended"


@dataclass(frozen=True)
class Work:
    """What an adapter must know of an attempt: its key, and whose token runs it."""

    key: str
    scope: str
    subject: str


class DispatchError(DomainError):
    """Handing over failed; `permanent` tells whether trying again can help."""


class Dispatcher(Protocol):
    name: str

    def submit(self, work: Work) -> None:
        """Start the work unless it runs already; the same key never runs twice. Raises DispatchError."""

    def observe(self, works: Sequence[Work]) -> Mapping[str, Observed]:
        """What became of each, by key."""

    def cancel(self, work: Work) -> None:
        """Stop it for good; no error if it is gone."""
