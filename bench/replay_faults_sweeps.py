"""The sweeps of the stack: how often they are sent, and how many the worker has done, as its log tells."""

import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

SWEEP_SECONDS = 5
# Those that mend what a lost message left.
_SWEEPS = ("builds.sweep", "lab.sweep", "detection.sweep")
_DONE = re.compile(r"Task ([a-z]+\.[a-z_]+)\[[0-9a-f-]+\] succeeded")


class Sweeps:
    """Reads on where it stopped. A worker that is only just being started sweeps nothing, however long that takes.

    Sweeps that were sent while it stood still are all done in the moment when it goes on: they had no more time to mend
    anything than one, and count as one.
    """

    def __init__(self, log: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._place = 0
        self._done = Counter[str]()
        self._whole = self._counted = 0
        self._counted_at = float("-inf")

    def done(self) -> int:
        """Whole sweeps since the beginning, as many as the rarest of them, and no two in less than half their time."""
        with self._log.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
        self._place += len(whole)
        self._done.update(_DONE.findall(whole.decode("utf-8", "replace")))
        now, before = self._clock(), self._whole
        self._whole = min(self._done[name] for name in _SWEEPS)
        if self._whole > before and now - self._counted_at >= SWEEP_SECONDS / 2:
            self._counted += 1
            self._counted_at = now
        return self._counted
