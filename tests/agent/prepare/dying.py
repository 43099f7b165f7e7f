"""An agent that is killed at one moment: in this process, by letting nothing happen any more, or for real.

`python -m tests.agent.prepare.dying ROOT STATE MOMENT` prepares the machine in ROOT, runs a case on it and is killed by
SIGKILL at that moment, in the middle of whatever it does then.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from tidemark_agent.prepare import Preparation
from tidemark_agent.prepare.journal import Journal

from tests.agent.prepare.tree import KernelTree, prepared

WANTS: Mapping[str, Any] = {
    "aslr": "off",
    "thp": "never",
    "thp_sizes": {"64": "always"},
    "numa_balancing": "on",
    "huge_pages": {"2048": 9},
    "drop_caches": 3,
}


class KilledError(BaseException):
    """The process does not exist any more."""


class Death:
    """Counts the moments at which a process can die: before and after each change, and around each journal line."""

    def __init__(self, moment: int, die: Callable[[], NoReturn]) -> None:
        self._left = moment
        self._die = die
        self.is_dead = False

    def moment(self, _event: str = "") -> None:
        self._left -= 1
        if self._left < 0:
            # The dead do nothing more: whatever they would do to clean up ends here as well.
            self.is_dead = True
            self._die()


def cease() -> NoReturn:
    raise KilledError


def _kill() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")


@contextmanager
def mortal_journal(death: Death) -> Iterator[None]:
    """Each line of the journal may be cut off by the death of its writer."""
    whole = Journal._append

    def append(self: Journal, record: Mapping[str, Any]) -> None:
        death.moment()
        size = self.path.stat().st_size
        whole(self, record)
        try:
            death.moment()
        except KilledError:
            data = self.path.read_bytes()
            # Any part of the line may be there; half of it is the nastiest, since it begins well.
            self.path.write_bytes(data[: (size + len(data)) // 2])
            raise

    Journal._append = append  # type: ignore[method-assign]
    try:
        yield
    finally:
        Journal._append = whole  # type: ignore[method-assign]


def live_and_die(tree: KernelTree, state: Path, moment: int, wants: Mapping[str, Any] = WANTS) -> bool:
    """Prepare, run a case, put back, and die at `moment`; False if the agent had ended before."""
    death = Death(moment, cease)
    tree.watch = death.moment
    preparation = prepared(tree, state)
    try:
        with mortal_journal(death):
            preparation.replay()
            preparation.apply()
            with preparation.case(wants):
                pass
            preparation.restore()
    except KilledError:
        pass
    finally:
        tree.watch = lambda _event: None
        bury(preparation)
    return death.is_dead


def bury(preparation: Preparation) -> None:
    """What the kernel does for a process that has died: its locks are free."""
    if preparation._lock is not None:
        os.close(preparation._lock)
        preparation._lock = None


def main(root: Path, state: Path, moment: int) -> None:
    death = Death(moment, _kill)
    tree = KernelTree(root)
    tree.watch = death.moment
    preparation = prepared(tree, state)
    with mortal_journal(death):
        preparation.apply()
        with preparation.case(WANTS):
            pass
        preparation.restore()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
