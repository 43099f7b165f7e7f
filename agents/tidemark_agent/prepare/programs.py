"""What is not set by writing a file: services by systemctl, swap by its system calls."""

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.prepare.files import SettingError, meaning
from tidemark_agent.process import capture

# A service may take its stop timeout of 90 s, and several may depend on it.
_SECONDS = 300.0
# From swapon(2): a priority is given, in the low 15 bits.
_PREFER = 0x8000
HIGHEST_PRIORITY = 0x7FFF


class Programs(Protocol):
    """Each raises SettingError with the reason."""

    def systemctl(self, arguments: Sequence[str]) -> str: ...

    def swap_on(self, path: str, priority: int | None) -> None: ...

    def swap_off(self, path: str) -> None: ...


class SystemPrograms:
    """The real ones. They are not ended when the agent is told to stop: putting things back happens just then."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch

    def systemctl(self, arguments: Sequence[str]) -> str:
        argv = ["systemctl", *arguments]
        try:
            return capture(argv, scratch=self._scratch, timeout=_SECONDS, stop=threading.Event())
        except (InfrastructureError, OSError) as error:
            raise SettingError(str(error)) from error

    def swap_on(self, path: str, priority: int | None) -> None:
        """Not by the program: that of small systems knows no priorities."""
        flags = 0 if priority is None else _PREFER | priority
        self._call("swapon", path, flags)

    def swap_off(self, path: str) -> None:
        """Takes as long as reading all back takes; the kernel refuses if it has not the memory."""
        self._call("swapoff", path)

    @staticmethod
    def _call(name: str, path: str, *more: int) -> None:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
        if function(os.fsencode(path), *more) != 0:
            number = ctypes.get_errno()
            raise SettingError(f"{name} {path}: {meaning(OSError(number, os.strerror(number)))}")
