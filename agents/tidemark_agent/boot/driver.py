"""What a boot driver gives back, and which drivers there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from tidemark_agent.assignment import KernelImage, PlannedCase
from tidemark_agent.boot.console import Measurement, Note
from tidemark_agent.probe import Facts


@dataclass(frozen=True)
class BootOutcome:
    """How one boot ended and what it gave."""

    outcome: str
    reason: str
    started_at: datetime
    ended_at: datetime
    boot_id: str = ""
    build_id: str = ""
    facts: Facts | None = None
    console_tail: str = ""
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[Note, ...] = ()


class Driver(Protocol):
    """Starts a kernel on the machine, runs the cases in it, and sees it end."""

    def boot(self, kernel: KernelImage, cases: Sequence[PlannedCase]) -> BootOutcome: ...
