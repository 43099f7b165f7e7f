"""What a boot driver gives back, and which drivers there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
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


@dataclass(frozen=True)
class KernelFiles:
    """A kernel with all that it needs to come up on this machine. `command_line` carries this boot's nonce."""

    image: Path
    build_id: str
    command_line: str
    initramfs: Path | None = None


class RebootDriver(Protocol):
    """Brings the machine that the agent itself runs on into a kernel, once; whatever happens, the safe kernel is next.

    Each step raises InfrastructureError when it cannot be done, and may be repeated after a crash at any point.
    """

    def check(self) -> None:
        """Whether this machine can do it at all."""

    def arm(self, kernel: KernelFiles) -> None:
        """Make `kernel` the one that the next `reboot` starts, and only that one."""

    def reboot(self) -> None:
        """Ask the system to go down into what is armed; returns when it was asked."""

    def disarm(self) -> None:
        """Make sure that the next boot of any kind is the safe kernel's."""

    def leave(self) -> None:
        """Ask the system to go down into the safe kernel; returns when it was asked."""
