"""Why measuring now would be wrong: work of others, heat, a lack of memory."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.heat import slowed_by, temperatures
from tidemark_agent.prepare.look import Process, Times, cpu_times, fields_of, pressure, processes, throttle_count

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
