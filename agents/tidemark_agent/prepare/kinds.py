"""Kinds of settings: how each is read and set, in files or by programs."""

import contextlib
import ctypes
import os
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.prepare.files import KernelFiles, SettingError, meaning
from tidemark_agent.prepare.model import cpu_list, cpu_mask, cpu_set, mask_set
from tidemark_agent.system.process import capture

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


# The kinds of things that can be set: each reads and writes one value by the name of its target.
#
# Values are brought into one form when they are read, so that two that mean the same are equal ("0,1" and "0-1").

_SELECTED = re.compile(r"\[([^\[\]\s]+)\]")
_OCTAL = re.compile(r"\\([0-7]{3})")
_RUNNING = {"active", "activating", "reloading", "refreshing"}
# The kernel gives negative priorities itself, in the order of swapon: none of them can be asked for.
AUTOMATIC = "auto"
_SWAPS = "proc/swaps"


class Kind(Protocol):
    def read(self, target: str) -> str | None:
        """The value now; None if there is no such thing; raises SettingError."""
        ...

    def write(self, target: str, value: str) -> None:
        """Raises SettingError; the caller reads back."""
        ...


class Word:
    """A file with one value, or with all possible ones and brackets around the selected."""

    def __init__(self, files: KernelFiles) -> None:
        self._files = files

    def read(self, target: str) -> str | None:
        text = self._files.read(target)
        selected = _SELECTED.search(text or "")
        return selected[1] if selected else text

    def write(self, target: str, value: str) -> None:
        self._files.write(target, value)


class CpuListFile(Word):
    def read(self, target: str) -> str | None:
        text = self._files.read(target)
        try:
            return None if text is None else cpu_list(cpu_set(text))
        except ValueError as error:
            raise SettingError(f"/{target}: {error}") from error


class CpuMaskFile(Word):
    def read(self, target: str) -> str | None:
        text = self._files.read(target)
        try:
            return None if text is None else cpu_mask(mask_set(text))
        except ValueError as error:
            raise SettingError(f"/{target}: {error}") from error


class CpusetController(Word):
    """Whether the children of a control group can have CPUs of their own: on or off in its cgroup.subtree_control."""

    def read(self, target: str) -> str | None:
        text = self._files.read(target)
        return None if text is None else ("on" if "cpuset" in text.removeprefix("+").split() else "off")

    def write(self, target: str, value: str) -> None:
        self._files.write(target, "+cpuset" if value == "on" else "-cpuset")


class HugePagePool(Word):
    """The number of huge pages in a pool. Memory in pieces gives fewer than asked: it is compacted and asked again."""

    def write(self, target: str, value: str) -> None:
        self._files.write(target, value)
        if int(value) > int(self.read(target) or 0):
            # The page cache holds most pieces; both are hints, and reading back decides.
            for hint, one in (("proc/sys/vm/drop_caches", "3"), ("proc/sys/vm/compact_memory", "1")):
                with contextlib.suppress(SettingError):
                    self._files.write(hint, one)
            self._files.write(target, value)


class Swap:
    """A swap device or file by its path: off, or its priority."""

    def __init__(self, files: KernelFiles, programs: Programs) -> None:
        self._files = files
        self._programs = programs

    def read(self, target: str) -> str | None:
        return swaps(self._files).get(target, "off")

    def write(self, target: str, value: str) -> None:
        if value == "off":
            self._programs.swap_off(target)
        elif value == AUTOMATIC:
            self._programs.swap_on(target, None)
        elif value.isdecimal() and int(value) <= HIGHEST_PRIORITY:
            self._programs.swap_on(target, int(value))
        else:
            raise SettingError(f"{value!r} is no priority of swap")


class Service:
    """A systemd unit by its name: active or inactive."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs

    def read(self, target: str) -> str | None:
        text = self._programs.systemctl(["show", "--property=ActiveState", "--value", "--", target])
        return "active" if text.strip() in _RUNNING else "inactive"

    def write(self, target: str, value: str) -> None:
        self._programs.systemctl(["start" if value == "active" else "stop", "--", target])


def swaps(files: KernelFiles) -> dict[str, str]:
    """Path and priority of each swap in use."""
    found = {}
    for line in (files.read(_SWAPS) or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) >= 5:  # noqa: PLR2004 (path, type, size, used, priority)
            path = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[0])
            found[path] = AUTOMATIC if fields[-1].startswith("-") else fields[-1]
    return found


def system_kinds(files: KernelFiles, programs: Programs) -> Mapping[str, Kind]:
    return {
        "word": Word(files),
        "cpus": CpuListFile(files),
        "mask": CpuMaskFile(files),
        "cpuset": CpusetController(files),
        "pool": HugePagePool(files),
        "swap": Swap(files, programs),
        "service": Service(programs),
    }
