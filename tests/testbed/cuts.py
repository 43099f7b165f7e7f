"""Power cuts at random moments of a session, spread over all of its boots."""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.testbed.machine import TestMachine

# Of the time from power-on to the first result. Coming home takes less: a reboot and one message to the service.
_LONGEST_LIFE = 0.7
_LONGEST_LAST_LIFE = 0.15
# A boot that ends without a trace is tried again three times: more cuts in one boot would make it fail for good.
_MOST_PER_BOOT = 3
_POLL = 0.1


@dataclass
class PowerCuts:
    """`count` cuts over a session of `boots` boots, of which the first is left alone, to see how long one takes.

    `finished` tells how many boots have their results; `made` are the lives (in seconds) that were cut off.
    """

    machine: TestMachine
    count: int
    boots: int
    finished: Callable[[], int]
    choice: random.Random
    patience: float
    made: list[float] = field(default_factory=list)

    def run(self) -> None:
        """Power on, cut, and leave the machine running for the rest, or off if it had its rest before."""
        begun = time.monotonic()
        self.machine.start()
        if not self._goes_on(0):
            return
        whole = time.monotonic() - begun
        of_boot: Counter[int] = Counter()
        while len(self.made) < self.count:
            done = self.finished()
            last = done == self.boots
            if of_boot[done] >= _MOST_PER_BOOT and not last:
                if not self._goes_on(done):
                    return
                continue
            life = whole * self.choice.uniform(0.0, _LONGEST_LAST_LIFE if last else _LONGEST_LIFE)
            if self._ends_within(life, done):
                return
            # What was finished meanwhile counts: then this cut is the next boot's.
            of_boot[self.finished()] += 1
            self.machine.cut()
            self.made.append(round(life, 2))
            self.machine.start()

    def _ends_within(self, life: float, done: int) -> bool:
        """Live that long, or less if a result comes; whether the machine switched itself off."""
        deadline = time.monotonic() + life
        while time.monotonic() < deadline and self.finished() == done:
            if self.machine.wait(min(_POLL, life)):
                return True
        return False

    def _goes_on(self, done: int) -> bool:
        """Leave the machine alone until there is one result more; False if none comes."""
        deadline = time.monotonic() + self.patience
        while self.finished() == done:
            if time.monotonic() > deadline or self.machine.wait(_POLL):
                return False
        return True
