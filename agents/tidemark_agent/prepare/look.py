"""One look at what a machine is doing: counters that only mean something against a second look."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.printable import one_line

_THROTTLED = "sys/devices/system/cpu"
_PRESSURE = re.compile(r"^some .*\btotal=(\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Times:
    """Of one CPU or all, in ticks of 1/100 s since boot: at work, idle, and taken by the hypervisor."""

    busy: int
    idle: int
    steal: int


@dataclass(frozen=True)
class Process:
    """`ticks` are those of all its threads, in and for it; `started` in ticks since boot tells it from a namesake."""

    pid: int
    parent: int
    name: str
    ticks: int
    started: int
    resident_pages: int


def cpu_times(files: KernelFiles) -> Mapping[str, Times]:
    """By the names of /proc/stat: `cpu` for all, `cpu0` ...; fields that a broken line lacks make it left out."""
    found = {}
    for line in files.text("proc/stat").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and len(fields) >= 8 and all(field.isdecimal() for field in fields):  # noqa: PLR2004 (user to steal)
            user, nice, system, idle, waiting, hard, soft, steal = (int(field) for field in fields[:8])
            found[name] = Times(user + nice + system + hard + soft, idle + waiting, steal)
    return found


def processes(files: KernelFiles) -> Mapping[int, Process]:
    found = {}
    for target in files.names("proc", "[0-9]*/stat"):
        process = _process(files.text(target))
        if process is not None:
            found[process.pid] = process
    return found


def pressure(files: KernelFiles) -> Mapping[str, int]:
    """Microseconds since boot in which some task waited for cpu, memory or io; empty on kernels without PSI."""
    texts = {name: files.text(f"proc/pressure/{name}") for name in ("cpu", "memory", "io")}
    return {name: int(match[1]) for name, text in texts.items() if (match := _PRESSURE.search(text))}


def throttle_count(files: KernelFiles) -> int | None:
    """How often cores and packages were slowed for heat since boot; None where nobody counts."""
    counts = [
        int(text)
        for name in ("core_throttle_count", "package_throttle_count")
        for target in files.names(_THROTTLED, f"cpu[0-9]*/thermal_throttle/{name}")
        if (text := files.text(target)).isdecimal()
    ]
    return sum(counts) if counts else None


def fields_of(files: KernelFiles, target: str) -> Mapping[str, int]:
    """`name value` or `name: value kB` lines, as in vmstat and meminfo."""
    found = {}
    for line in files.text(target).splitlines():
        name, _, rest = line.partition(" ")
        value = rest.split()[0] if rest.split() else ""
        if value.isdecimal():
            found[name.rstrip(":")] = int(value)
    return found


def _process(text: str) -> Process | None:
    """PID (NAME) STATE PARENT ...: the name may have any character in it, so it ends at the last bracket."""
    head, _, tail = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    numbers = [fields[at] for at in (1, 11, 12, 19, 21)] if len(fields) > 21 else []  # noqa: PLR2004 (up to rss)
    if not pid.isdecimal() or not numbers or not all(number.isdecimal() for number in numbers):
        return None
    parent, user, system, started, resident = (int(number) for number in numbers)
    return Process(int(pid), parent, one_line(name), user + system, started, resident)
