"""No endless waiting: a deadline for everything, and a shorter one for a service in which nothing moves."""

import time
from collections.abc import Callable

from demo.errors import DemoError

STALL_SECONDS = 15 * 60.0


class Patience:
    def __init__(self, seconds: float, logs: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds = seconds
        self._deadline = now() + seconds
        self._logs = logs
        self._pulse = ""
        self._moved = now()

    def feel(self, pulse: str) -> None:
        """Raise a DemoError when the time is over or the pulse has been the same for too long."""
        now = self._now()
        if pulse != self._pulse:
            self._pulse, self._moved = pulse, now
        if now - self._moved > STALL_SECONDS:
            raise DemoError(
                f"nothing has moved for {STALL_SECONDS / 60:.0f} minutes; what the processes say: {self._logs}"
            )
        if now > self._deadline:
            raise DemoError(
                f"not at the end after {self._seconds / 60:.0f} minutes; what the processes say: {self._logs}"
            )
