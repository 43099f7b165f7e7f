"""What every boot driver does, the driver that boots nothing, and rebooting."""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from tidemark_agent.boot.console import Measurement, Note
from tidemark_agent.boot.evidence import LEAVING
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.probe import Facts
from tidemark_agent.system.process import capture


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


# The boot driver `current`: no reboot at all. What runs is measured, where it is what was wanted.
#
# For authors of benchmarks and for single boots: all boots of such a session have one boot id, and the service stores
# only the first of them.


class CurrentDriver:
    """Does nothing, since nothing is to be done."""

    def check(self) -> None:
        """Always possible."""

    def arm(self, kernel: KernelFiles) -> None:
        """The running kernel is the one."""

    def reboot(self) -> None:
        """It runs already."""

    def disarm(self) -> None:
        """Nothing is armed."""

    def leave(self) -> None:
        """There is no other kernel to go to."""


_SECONDS = 60.0
_REMOUNT_SECONDS = 5.0
_POLL_SECONDS = 0.05
# DEVICE DIRECTORY TYPE OPTIONS ...
_OPTIONS_AT = 3


@dataclass(frozen=True)
class Reboots:
    """The two ways down. The programs may answer before the machine is gone; whoever asked waits to be ended."""

    config: BootConfig
    root: Path = Path("/")

    def into_loaded(self) -> None:
        """Start the kernel that kexec has loaded."""
        self._go_down(self.config.reboot, ("systemctl", "kexec"), ("kexec", "-e"))

    def through_firmware(self) -> None:
        """Restart the machine."""
        self._go_down(self.config.restart, ("systemctl", "reboot"), ("reboot", "-f"))

    def _go_down(self, chosen: Sequence[str], by_systemd: Sequence[str], bare: Sequence[str]) -> None:
        os.sync()
        self._say_goodbye()
        if chosen or (self.root / "run/systemd/system").is_dir():
            _run(chosen or by_systemd)
            return
        self._remount_read_only()
        try:
            _run(bare)
        except (InfrastructureError, OSError):
            # Nothing can be written any more, so there is no way but down.
            self._press("b")
            raise

    def _say_goodbye(self) -> None:
        """Errors reach every console, that of pstore too, however quiet the kernel was told to be."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self.root / "dev/kmsg", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, f"<3>{LEAVING}\n".encode())
            finally:
                os.close(descriptor)

    def _remount_read_only(self) -> None:
        """What a clean shutdown does for file systems: GRUB reads them without replaying their journals."""
        self._press("u")
        deadline = time.monotonic() + _REMOUNT_SECONDS
        while self._has_writable_disk() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)

    def _has_writable_disk(self) -> bool:
        try:
            mounts = (self.root / "proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return False
        fields = (line.split() for line in mounts)
        return any(f[0].startswith("/dev/") and "rw" in f[_OPTIONS_AT].split(",") for f in fields)

    def _press(self, key: str) -> None:
        """A key of the kernel's emergency keyboard, which root may always press."""
        with contextlib.suppress(OSError):
            (self.root / "proc/sysrq-trigger").write_text(key, encoding="ascii")


def _run(command: Sequence[str]) -> None:
    # The disks may be read-only by now; /dev/shm is memory.
    memory = Path("/dev/shm")  # noqa: S108 (the file gets a name of its own in a directory of its own)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as scratch:
        capture(command, scratch=Path(scratch), timeout=_SECONDS, stop=threading.Event())
