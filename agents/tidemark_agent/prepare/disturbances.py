"""What disturbs a machine: heat, other work; and waiting until it is quiet."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.errors import StoppedError
from tidemark_agent.log import Log
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.model import CannotMeasureError
from tidemark_agent.system.text import one_line

_THERMAL = "sys/class/thermal"
_HWMON = "sys/class/hwmon"
_MILLI = 1000
# Sensors that are not connected show 0, -128 or 255 degrees: none of these is believed.
_COLDEST, _HOTTEST = 1, 200
_TRIPS = {"critical", "hot"}
# Sensors of processors and memory: those of disks and radios say nothing about a measurement, and some say nonsense.
_DRIVERS = {
    "coretemp",
    "cpu_thermal",
    "jc42",
    "k10temp",
    "k8temp",
    "scmi_sensors",
    "scpi_sensors",
    "spd5118",
    "zenpower",
}
# Cooling devices that make a CPU slower; fans are cooling devices, too.
_SLOWING = ("Processor", "cpufreq", "cpuidle", "intel_powerclamp", "thermal-cpufreq", "thermal-idle")


@dataclass(frozen=True)
class Temperature:
    """In degrees Celsius; `limit` is the lowest at which the machine protects itself, None if it does not say."""

    name: str
    degrees: float
    limit: float | None


def temperatures(files: KernelFiles) -> Iterator[Temperature]:
    for target in files.names(_THERMAL, "thermal_zone[0-9]*/temp"):
        zone = target.removesuffix("/temp")
        limits = [
            _degrees(files, f"{trip.removesuffix('_type')}_temp")
            for trip in files.names(zone, "trip_point_[0-9]*_type")
            if files.text(trip) in _TRIPS
        ]
        yield from _reading(files, target, files.text(f"{zone}/type"), limits)
    for target in files.names(_HWMON, "hwmon[0-9]*/temp[0-9]*_input"):
        driver = files.text(target.rpartition("/")[0] + "/name")
        if driver in _DRIVERS:
            stem = target.removesuffix("_input")
            name = f"{driver} {files.text(f'{stem}_label')}".strip()
            yield from _reading(files, target, name, [_degrees(files, f"{stem}_crit")])


def slowed_by(files: KernelFiles) -> Iterator[str]:
    """Cooling devices that slow a CPU at this moment."""
    for target in files.names(_THERMAL, "cooling_device[0-9]*/cur_state"):
        kind = files.text(target.removesuffix("cur_state") + "type")
        state = files.text(target)
        if kind.startswith(_SLOWING) and state.isdecimal() and int(state) > 0:
            yield f"{kind} at step {state}"


def _reading(files: KernelFiles, target: str, name: str, limits: list[float | None]) -> Iterator[Temperature]:
    degrees = _degrees(files, target)
    if degrees is not None:
        yield Temperature(name or target, degrees, min((limit for limit in limits if limit), default=None))


def _degrees(files: KernelFiles, target: str) -> float | None:
    text = files.text(target)
    if not text.removeprefix("-").isdecimal() or not _COLDEST <= int(text) / _MILLI <= _HOTTEST:
        return None
    return int(text) / _MILLI


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


# Long enough that one tick of 10 ms, the finest that /proc tells, is one percent of a CPU.
LOOK_SECONDS = 1.0
# What /proc counts in, on every architecture (USER_HZ).
TICKS_A_SECOND = 100
# Daemons of an idle system take well below this share of one CPU all together, a cron job or a login takes more.
_MOST_BUSY = 0.10
_BUSY_PROCESS = 0.05
_MOST_STALLED = 0.05
_MOST_STOLEN = 0.02
_LEAST_MEMORY = 0.10
_MOST_SWAP = 0.01
_NEAR_DEGREES = 5.0
_MOST_NAMED = 5
# The first 15 characters, which is all that the kernel keeps of a name.
_PACKAGE_MANAGERS = {
    "apt", "apt-get", "apt.systemd.dai", "aptitude", "dnf", "dnf5", "dpkg", "pacman", "rpm", "unattended-upgr",
    "yum", "zypper",
}  # fmt: skip
# Debian's waits all day long for the shutdown and does nothing.
_IDLE_UPGRADER = "--wait-for-signal"


@dataclass(frozen=True)
class _Look:
    at: float
    times: Mapping[str, Times]
    processes: Mapping[int, Process]
    pressure: Mapping[str, int]
    throttled: int | None
    swapped: int


def disturbances(
    root: Path,
    *,
    own: int | None = None,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Every reason not to measure now, for people; () if the machine is quiet. Looks twice, a second apart.

    `own` is the agent's process (this one): what it and its children do is not held against the machine.
    """
    files = KernelFiles(root)
    before = _look(files, clock())
    pause(LOOK_SECONDS)
    after = _look(files, clock())
    return (
        *_busy(before, after, os.getpid() if own is None else own, files),
        *_stalled(before, after),
        *_hot(before, after, files),
        *_upgrading(after, files),
        *_short_of_memory(before, after, files),
    )


def _look(files: KernelFiles, at: float) -> _Look:
    events = fields_of(files, "proc/vmstat")
    swapped = events.get("pswpin", 0) + events.get("pswpout", 0)
    return _Look(at, cpu_times(files), processes(files), pressure(files), throttle_count(files), swapped)


def _busy(before: _Look, after: _Look, own: int, files: KernelFiles) -> Iterator[str]:
    start, end = before.times.get("cpu"), after.times.get("cpu")
    if start is None or end is None:
        yield "/proc/stat does not tell how busy the CPUs are"
        return
    ticks = max(after.at - before.at, LOOK_SECONDS / 2) * TICKS_A_SECOND
    ours = _family(after.processes, own)
    used = {pid: _used(before.processes.get(pid), process, ticks) for pid, process in after.processes.items()}
    of_ours = sum(used[pid] for pid in ours if pid in used)
    of_others = sum(used[pid] for pid in used if pid not in ours)
    # Interrupts are in no process, and emulators lose ticks of CPUs while the times of processes stay exact.
    others = max(end.busy - start.busy - of_ours, of_others) / ticks
    if others > _MOST_BUSY:
        big = sorted((pid for pid in used if pid not in ours), key=lambda pid: -used[pid])[:_MOST_NAMED]
        named = [
            f"{after.processes[pid].name} (pid {pid}) {used[pid] / ticks:.0%}"
            for pid in big
            if used[pid] / ticks > _BUSY_PROCESS
        ]
        load = files.text("proc/loadavg").split()[:1]
        yield (
            f"others use {others:.0%} of a CPU (load {load[0] if load else 'unknown'}):"
            f" {', '.join(named) or 'no single process'}"
        )
    stolen = (end.steal - start.steal) / ticks
    if stolen > _MOST_STOLEN:
        yield f"the hypervisor takes away {stolen:.0%} of a CPU"


def _stalled(before: _Look, after: _Look) -> Iterator[str]:
    """Waiting for a CPU is not asked for: what waits is busy, and the agent's own work may make it wait."""
    passed = max(after.at - before.at, LOOK_SECONDS / 2) * 1e6
    for name in ("memory", "io"):
        share = (after.pressure.get(name, 0) - before.pressure.get(name, 0)) / passed
        if share > _MOST_STALLED:
            yield f"tasks wait for {name} {share:.0%} of the time"


def _hot(before: _Look, after: _Look, files: KernelFiles) -> Iterator[str]:
    if before.throttled is not None and after.throttled is not None and after.throttled > before.throttled:
        yield f"CPUs were throttled for heat {after.throttled - before.throttled} times in the last second"
    # Each CPU has such a device, and all of them are slowed alike.
    for cooling in dict.fromkeys(slowed_by(files)):
        yield f"CPUs are slowed for heat: {cooling}"
    for sensor in temperatures(files):
        if sensor.limit is not None and sensor.degrees >= sensor.limit - _NEAR_DEGREES:
            yield f"{sensor.name} is at {sensor.degrees:.0f} degrees, its limit is {sensor.limit:.0f}"


def _upgrading(after: _Look, files: KernelFiles) -> Iterator[str]:
    for process in after.processes.values():
        if process.name in _PACKAGE_MANAGERS:
            command = files.text(f"proc/{process.pid}/cmdline").split("\0")
            if _IDLE_UPGRADER not in command:
                yield f"packages are being installed: {process.name} (pid {process.pid})"


def _short_of_memory(before: _Look, after: _Look, files: KernelFiles) -> Iterator[str]:
    memory = fields_of(files, "proc/meminfo")
    total, available = memory.get("MemTotal", 0), memory.get("MemAvailable", 0)
    if total and "MemAvailable" in memory and available < total * _LEAST_MEMORY:
        biggest = max(after.processes.values(), key=lambda process: process.resident_pages, default=None)
        name = f"; the biggest process is {biggest.name} (pid {biggest.pid})" if biggest else ""
        yield f"only {available // 1024} of {total // 1024} MiB of memory are available{name}"
    if after.swapped > before.swapped:
        yield f"{after.swapped - before.swapped} pages went to or from swap in the last second"
    in_swap = memory.get("SwapTotal", 0) - memory.get("SwapFree", 0)
    if in_swap > total * _MOST_SWAP:
        yield f"{in_swap // 1024} MiB are in swap"


def _used(before: Process | None, after: Process, window: float) -> float:
    """Ticks since the first look; one that is new has used all its ticks since, but no more than there were."""
    if before is not None and before.started == after.started:
        return after.ticks - before.ticks
    return min(after.ticks, window)


def _family(all_of: Mapping[int, Process], own: int) -> set[int]:
    """The process and all below it."""
    family = {own}
    while more := {process.pid for process in all_of.values() if process.parent in family} - family:
        family |= more
    return family


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
