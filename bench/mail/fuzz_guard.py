"""One mail after the other below a limit of CPU time; what breaks is counted and its input saved.

Needs no Django: the coverage-guided fuzzer runs it in an environment of its own.
"""

import json
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

# CPU seconds for reading one mail twice. A mail of the largest size that is parsed takes a fraction of it.
LIMIT_SECONDS = 2.0
# Code that lets no signal through is ended with its process.
HARD_LIMIT_SECONDS = 20.0
_MOST_MEMORY = 3 * 2**30
_SAVED_OF_EACH = 3


class StallError(BaseException):
    """Not an Exception: what is tested catches those."""


@dataclass
class Tally:
    """What came of the mails; `troubles` counts crashes and stalls by where they happened."""

    mails: int = 0
    crashes: int = 0
    stalls: int = 0
    slowest: float = 0.0
    slowest_name: str = ""
    kinds: Counter[str] = field(default_factory=Counter)
    troubles: Counter[str] = field(default_factory=Counter)

    def add(self, other: "Tally") -> None:
        self.mails += other.mails
        self.crashes += other.crashes
        self.stalls += other.stalls
        if other.slowest > self.slowest:
            self.slowest, self.slowest_name = other.slowest, other.slowest_name
        self.kinds.update(other.kinds)
        self.troubles.update(other.troubles)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(vars(self)), encoding="utf-8")


def read_tally(path: Path) -> Tally:
    found = json.loads(path.read_text(encoding="utf-8"))
    return Tally(**{**found, "kinds": Counter(found["kinds"]), "troubles": Counter(found["troubles"])})


class Guard:
    """Runs attempts in this process; inputs of those that fail are saved in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tally = Tally()
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        signal.signal(signal.SIGPROF, _stalled)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)

    def attempt(self, name: str, raw: bytes, what: Callable[[], str]) -> None:
        """Do `what`, which gives the kind of the mail; `name` and `raw` tell how to do it again."""
        before = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, HARD_LIMIT_SECONDS)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        try:
            self.tally.kinds[what()] += 1
        except StallError as error:
            self.tally.stalls += 1
            self._save(name, raw, error)
        except Exception as error:  # noqa: BLE001 (every one is a finding)
            self.tally.crashes += 1
            self._save(name, raw, error)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        spent = time.process_time() - before
        if spent > self.tally.slowest:
            self.tally.slowest, self.tally.slowest_name = spent, name

    def _save(self, name: str, raw: bytes, error: BaseException) -> None:
        where = traceback.extract_tb(error.__traceback__)[-1]
        key = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"
        self.tally.troubles[key] += 1
        if self.tally.troubles[key] <= _SAVED_OF_EACH:
            save(self.folder, name, raw, "".join(traceback.format_exception(error)))


def save(folder: Path, name: str, raw: bytes, said: str) -> None:
    """The input as NAME.eml and what happened as NAME.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace(":", "-")
    (folder / f"{stem}.eml").write_bytes(raw)
    (folder / f"{stem}.txt").write_text(said, encoding="utf-8", errors="replace")


def _stalled(_signal: int, _frame: FrameType | None) -> None:
    raise StallError(f"more than {LIMIT_SECONDS} s of CPU time")
