"""The hardware watchdog: when the kernel under test hangs, nobody pets it any more and the machine restarts itself."""

import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Self

from tidemark_agent.log import Log

# _IOWR('W', 6, int): linux/watchdog.h
_SET_TIMEOUT = 0xC0045706
_TIMEOUT_SECONDS = 60
_PET_SECONDS = 20.0
# Written before closing, it says that the silence from now on is meant.
_MAGIC_CLOSE = b"V"


class Watchdog:
    """Pets the device until the end of the `with` or until `seconds` are over, whichever is first."""

    def __init__(self, device: str, seconds: float, log: Log) -> None:
        self._device = Path(device) if device else None
        self._rounds = int(seconds / _PET_SECONDS) + 2
        self._log = log
        self._over = threading.Event()
        self._descriptor = -1

    def __enter__(self) -> Self:
        if self._device is None:
            return self
        try:
            self._descriptor = os.open(self._device, os.O_WRONLY | os.O_CLOEXEC)
            fcntl.ioctl(self._descriptor, _SET_TIMEOUT, struct.pack("i", _TIMEOUT_SECONDS))
        except OSError as error:
            self._log.warning("no-watchdog", device=str(self._device), reason=str(error))
        if self._descriptor >= 0:
            threading.Thread(target=self._pet, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        if self._descriptor >= 0:
            try:
                os.write(self._descriptor, _MAGIC_CLOSE)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _pet(self) -> None:
        for _ in range(self._rounds):
            try:
                os.write(self._descriptor, b"\0")
            except OSError as error:
                self._log.warning("watchdog-lost", reason=str(error))
                return
            if self._over.wait(_PET_SECONDS):
                return
        self._log.failure("watchdog-left-alone", reason="the boot did not end in time")
