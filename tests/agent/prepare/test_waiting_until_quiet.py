"""Patience with a machine that is busy, and its end."""

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.log import Log
from tidemark_agent.prepare import CannotMeasureError, wait_until_quiet


class Waiting(threading.Event):
    """Time passes only by waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.is_set()


def busy_for(looks: int, reason: str = "others use 90% of a CPU") -> Callable[[Path], tuple[str, ...]]:
    left = iter([(reason,)] * looks)
    return lambda _root: next(left, ())


def waited(stop: Waiting, look: Callable[[Path], tuple[str, ...]], stream: io.StringIO | None = None) -> float:
    log = Log(stream or io.StringIO())
    return wait_until_quiet(Path("/"), log=log, stop=stop, patience=60, look=look, clock=lambda: stop.now)


def test_quiet_machine_is_not_waited_for() -> None:
    assert waited(Waiting(), busy_for(0)) == 0.0


def test_machine_that_calms_down_is_measured_and_the_reason_is_told_once() -> None:
    stream = io.StringIO()
    assert waited(Waiting(), busy_for(4), stream) == 20.0
    assert stream.getvalue().count("others use 90% of a CPU") == 1


def test_machine_that_stays_busy_is_not_measured_and_says_why() -> None:
    with pytest.raises(CannotMeasureError, match="not quiet for 60 s: others use 90% of a CPU") as refusal:
        waited(Waiting(), busy_for(1000))
    assert isinstance(refusal.value, InfrastructureError)


def test_waiting_ends_when_the_agent_is_stopped() -> None:
    stop = Waiting()
    stop.set()
    with pytest.raises(StoppedError):
        waited(stop, busy_for(1000))
