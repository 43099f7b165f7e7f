"""Watching a replay on the whole stack: when the next fault strikes, and whether open work stands still."""

import time
from dataclasses import dataclass, field

from bench.replay_faults_kinds import FAULTS, Victim
from bench.replay_faults_open import agents_at_work, last_change, open_work
from bench.replay_faults_rows import persist
from bench.replay_faults_sweeps import Sweeps

# Between two faults; mostly longer than two sweeps, or nothing could be seen to stand still.
_PAUSES = (4.0, 16.0)


@dataclass
class Watch:
    """Strikes when it is time, and keeps how many sweeps at most went by in which nothing moved."""

    victim: Victim
    left: list[str]
    sweeps: Sweeps
    struck: list[str] = field(default_factory=list)
    next_at: float = 0.0
    stillest: int = 0
    stood: str = ""
    _seen: tuple[int, int] = (0, 0)
    _since: int = 0

    def begin(self) -> None:
        self._wait()
        self._since = self.sweeps.done()

    def step(self) -> None:
        now = time.monotonic()
        if self.left and now > self.next_at:
            name = self.left[-1]
            if FAULTS[name](self.victim):
                self.struck.append(self.left.pop())
                print(f"{len(self.struck)}. {name}", flush=True)
                self._wait()
        seen, swept = persist(last_change), self.sweeps.done()
        # A sweep that was under way when something moved may have looked before; what stands still moves nothing.
        if seen != self._seen or persist(agents_at_work) or self.victim.frozen:
            self._seen, self._since = seen, swept + 1
        elif swept - self._since > self.stillest and persist(open_work):
            self.stillest, self.stood = swept - self._since, str(persist(open_work))

    def _wait(self) -> None:
        self.next_at = time.monotonic() + self.victim.dice.uniform(*_PAUSES)
