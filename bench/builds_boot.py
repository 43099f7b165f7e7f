"""Booting what was built, emulated, with one case of a benchmark: whether it comes up and is the kernel it should."""

import hashlib
import io
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tidemark_agent.assignment import KernelImage, PlannedCase
from tidemark_agent.benchmarks import compiled_program, find_benchmark
from tidemark_agent.boot.initramfs import INIT_SOURCE, build_initramfs
from tidemark_agent.boot.qemu import QemuDriver
from tidemark_agent.boot.tsc import COUNTED_KHZ
from tidemark_agent.compilers import static_program
from tidemark_agent.log import Log

_BENCHMARK, _CASE = "mm-basic", "fault-4k"
CPUS: Final[Mapping[str, str]] = {"x86_64": "Nehalem", "arm64": "cortex-a72"}
_SECONDS = 600.0


@dataclass(frozen=True)
class Booted:
    """`outcome` and `reason` are the driver's; `nanoseconds` is what the case took per fault."""

    outcome: str
    reason: str
    seconds: float
    nanoseconds: float | None
    console: str


def boot(image: Path, build_id: str, arch: str, folder: Path) -> Booted:
    """One boot in which instructions are counted, so that the figures do not depend on what else this host does."""
    work = folder / "boot"
    work.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    case = _planned_case()
    driver = QemuDriver(
        arch=arch,
        options={"cpu": CPUS[arch]},
        clock="instructions",
        sandbox=False,
        timeout_seconds=_SECONDS,
        image={sha256: image},
        initramfs=_initramfs(case, arch, work),
        tsc_khz=COUNTED_KHZ if arch == "x86_64" else None,
        work=work,
        log=Log(io.StringIO()),
        stop=threading.Event(),
    )
    began = time.monotonic()
    outcome = driver.boot(KernelImage(image=sha256, build_id=build_id), [case])
    values = [value for measured in outcome.measurements for value in measured.values[measured.warmup :]]
    return Booted(
        outcome.outcome,
        outcome.reason,
        time.monotonic() - began,
        median(values) if values else None,
        outcome.console_tail,
    )


def _planned_case() -> PlannedCase:
    version = find_benchmark(_BENCHMARK).version
    return PlannedCase(_BENCHMARK, version, _CASE, runs=3, warmup=1, timeout_seconds=300, metrics=("time",))


def _initramfs(case: PlannedCase, arch: str, work: Path) -> Path:
    stop = threading.Event()
    program = compiled_program(find_benchmark(_BENCHMARK), cache=work, stop=stop, arch=arch)
    init = static_program(INIT_SOURCE, arch=arch, cache=work, stop=stop)
    path = work / "initramfs"
    path.write_bytes(build_initramfs([case], {_BENCHMARK: program}, init=init))
    return path
