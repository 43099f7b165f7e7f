"""The sweeps of the stack: how often they are sent, and how many the worker has done, as its log tells."""

import re
from collections import Counter
from pathlib import Path

SWEEP_SECONDS = 5
# Those that mend what a lost message left.
_SWEEPS = ("builds.sweep", "lab.sweep", "detection.sweep")
_DONE = re.compile(r"Task ([a-z]+\.[a-z_]+)\[[0-9a-f-]+\] succeeded")


class Sweeps:
    """Reads on where it stopped. A worker that is only just being started sweeps nothing, however long that takes."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._place = 0
        self._done = Counter[str]()

    def done(self) -> int:
        """Whole sweeps since the beginning: as many as the rarest of them."""
        with self._log.open("rb") as file:
            file.seek(self._place)
            whole = file.read().rpartition(b"\n")[0]
        self._place += len(whole)
        self._done.update(_DONE.findall(whole.decode("utf-8", "replace")))
        return min(self._done[name] for name in _SWEEPS)
