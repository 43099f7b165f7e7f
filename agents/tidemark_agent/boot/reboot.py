"""Asking the system to go down: by systemd where it runs, by the bare programs where a script is init."""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.words import LEAVING
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.process import capture

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
