"""What a machine went through while it measured, and how noisy its CPUs are before."""

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log
from tidemark_agent.prepare.disturbances import cpu_times, fields_of, pressure, temperatures, throttle_count
from tidemark_agent.prepare.files import KernelFiles
from tidemark_agent.prepare.model import cpu_set
from tidemark_agent.system.process import capture
from tidemark_agent.version import bundle_root

# Reading a frequency may interrupt its CPU, and a machine may have hundreds: some of them stand for all.
_MOST_FREQUENCIES = 8
_COUNTED = {"ctxt": "context_switches", "intr": "interrupts", "softirq": "softirqs", "processes": "forks"}
_RUNNING = {"procs_running": "running", "procs_blocked": "blocked"}
_EVENTS = ("pgfault", "pgmajfault", "pswpin", "pswpout", "numa_pages_migrated", "thp_fault_alloc", "compact_stall")


class Sampler:
    """`cpus` are the measured ones ("" for all): their frequencies and times are told besides those of the machine."""

    def __init__(self, root: Path = Path("/"), *, cpus: str = "") -> None:
        self._files = KernelFiles(root)
        self._cpus = sorted(cpu_set(cpus))

    def sample(self) -> Mapping[str, float | int]:
        """Counters since boot and values now; what this system does not tell is left out.

        Ticks are 1/100 s, `psi_*_us` and `monotonic_us` microseconds, frequencies kHz, temperatures degrees Celsius.
        """
        return {
            "monotonic_us": time.monotonic_ns() // 1000,
            **self._activity(),
            **self._times(),
            **{f"psi_{name}_us": total for name, total in pressure(self._files).items()},
            **self._heat(),
            **self._frequencies(),
        }

    def _activity(self) -> dict[str, float | int]:
        first = self._files.text("proc/loadavg").partition(" ")[0]
        load = {"load1": float(first)} if first.replace(".", "", 1).isdecimal() else {}
        counts = fields_of(self._files, "proc/stat")
        events = fields_of(self._files, "proc/vmstat")
        memory = fields_of(self._files, "proc/meminfo")
        return {
            **load,
            **{short: counts[name] for name, short in (_COUNTED | _RUNNING).items() if name in counts},
            **{name: events[name] for name in _EVENTS if name in events},
            **({"available_kb": memory["MemAvailable"]} if "MemAvailable" in memory else {}),
        }

    def _times(self) -> dict[str, int]:
        every = cpu_times(self._files)
        found = {}
        if "cpu" in every:
            total = every["cpu"]
            found = {"busy_ticks": total.busy, "idle_ticks": total.idle, "steal_ticks": total.steal}
        measured = [every[f"cpu{cpu}"] for cpu in self._cpus if f"cpu{cpu}" in every]
        if measured:
            found["measured_busy_ticks"] = sum(times.busy for times in measured)
            found["measured_steal_ticks"] = sum(times.steal for times in measured)
        return found

    def _heat(self) -> dict[str, float | int]:
        hottest = max((sensor.degrees for sensor in temperatures(self._files)), default=None)
        throttled = throttle_count(self._files)
        return {
            **({} if hottest is None else {"temperature_max_c": hottest}),
            **({} if throttled is None else {"throttle_count": throttled}),
        }

    def _frequencies(self) -> dict[str, int]:
        pattern = "cpu[0-9]*/cpufreq/scaling_cur_freq"
        targets = (
            [f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in self._cpus]
            if self._cpus
            else list(self._files.names("sys/devices/system/cpu", pattern))
        )
        step = -(-len(targets) // _MOST_FREQUENCIES) or 1
        seen = [int(text) for target in targets[::step] if (text := self._files.text(target)).isdecimal()]
        return {"frequency_min_khz": min(seen), "frequency_max_khz": max(seen)} if seen else {}


_MILLISECONDS = 50
# Some CPUs stand for all: 64 times 50 ms would be waited for at every boot.
_MOST_CPUS = 4
_SECONDS = 20.0


def scheduling_noise(cpus: str, *, scratch: Path, log: Log, stop: threading.Event) -> tuple[dict[str, float], ...]:
    """One object for each CPU that was watched (see noise_probe.py), at most four of `cpus`, evenly chosen.

    Never while a case runs: it takes the whole CPU. Empty where it cannot be done, since nothing depends on it; raises
    StoppedError.
    """
    every = sorted(cpu_set(cpus))
    chosen = every[:: -(-len(every) // _MOST_CPUS) or 1]
    if not chosen:
        return ()
    source = (bundle_root() / "tidemark_agent" / "prepare" / "noise_probe.py").read_text(encoding="utf-8")
    names = ",".join(str(cpu) for cpu in chosen)
    try:
        text = capture(
            [sys.executable, "-I", "-S", "-c", source, names, str(_MILLISECONDS)],
            scratch=scratch,
            timeout=_SECONDS,
            stop=stop,
        )
        return tuple(dict(json.loads(line)) for line in text.splitlines())
    except (InfrastructureError, OSError, ValueError) as error:
        log.warning("noise-not-measured", reason=str(error))
        return ()
