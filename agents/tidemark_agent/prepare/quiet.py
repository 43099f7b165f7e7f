"""Waiting until a machine is fit to be measured."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from tidemark_agent.errors import StoppedError
from tidemark_agent.log import Log
from tidemark_agent.prepare.disturbances import disturbances
from tidemark_agent.prepare.model import CannotMeasureError

# A machine that has just booted finishes its start in this time; one that is still busy then has other work.
DEFAULT_PATIENCE = 300.0
_BETWEEN_LOOKS = 5.0


def wait_until_quiet(
    root: Path,
    *,
    log: Log,
    stop: threading.Event,
    patience: float = DEFAULT_PATIENCE,
    look: Callable[[Path], tuple[str, ...]] = disturbances,
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Return once nothing disturbs, with the seconds that this took.

    Raises CannotMeasureError with all reasons when `patience` (seconds) is over, StoppedError when `stop` is set.
    """
    started = clock()
    told: tuple[str, ...] = ()
    while reasons := look(root):
        if clock() - started >= patience:
            raise CannotMeasureError(f"the machine was not quiet for {patience:.0f} s: {'; '.join(reasons)}")
        if reasons != told:
            log.info("waiting-until-quiet", reasons=list(reasons))
            told = reasons
        if stop.wait(_BETWEEN_LOOKS):
            raise StoppedError("stopped while waiting for a quiet machine")
    return clock() - started
