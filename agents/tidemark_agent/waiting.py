"""When a result that the server does not take is tried again: kept on disk, so that a restart does not begin anew."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.disk import write_durably

_FIRST_SECONDS = 60.0
_LONGEST_SECONDS = 24 * 3600.0
_GROWTH = 4.0
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Delay:
    """How often an item failed, when by the wall clock its next turn is, and why it failed last."""

    failures: int
    next_at: float
    reason: str

    def is_over(self, now: float) -> bool:
        """Also when the clock was set back: a turn that is further away than the longest pause was never given."""
        return now >= self.next_at or self.next_at - now > _LONGEST_SECONDS


def delay_of(item: Path) -> Delay | None:
    """The delay of a spooled item, or None if it has none that can be read."""
    try:
        record = json.loads(_file(item).read_bytes())
        return Delay(int(record["failures"]), float(record["next_at"]), str(record["reason"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def put_off(item: Path, reason: str, *, clock: Callable[[], float] = time.time) -> Delay:
    """Note another failure of `item`; its pauses grow to a day. On a full disk it is not noted, which does no harm."""
    before = delay_of(item)
    failures = 1 + (before.failures if before else 0)
    # The exponent is bounded too: powers of large numbers overflow.
    pause = min(_FIRST_SECONDS * _GROWTH ** min(failures - 1, 10), _LONGEST_SECONDS)
    delay = Delay(failures, clock() + pause, reason[:_LONGEST_REASON])
    try:
        write_durably(_file(item), json.dumps(vars(delay)).encode())
    except OSError:
        return delay
    return delay


def forget_delay(item: Path) -> None:
    _file(item).unlink(missing_ok=True)


def _file(item: Path) -> Path:
    return item.with_suffix(".later")
