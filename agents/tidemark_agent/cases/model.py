"""What a case needs to run, and what it gives: the words between the session runner and the benchmarks."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.log import Log
from tidemark_agent.probe import CoreKind


@dataclass(frozen=True)
class Surroundings:
    """The booted system that cases run in.

    `programs` are the operator's external programs by name, `modules` holds the benchmark modules that were built with
    the running kernel (None: there are none), `core_types` the kinds of cores with the CPUs to measure on. `sample` is
    asked before and after each run for temperatures, frequencies and noise. `pins` is the SHA-256 that the operator
    wants some of the programs to have.
    """

    state: Path
    programs: Mapping[str, Path]
    modules: Path | None
    core_types: tuple[CoreKind, ...]
    log: Log
    stop: threading.Event
    sample: Callable[[], Mapping[str, Any]] = dict
    with_counters: bool = False
    pins: Mapping[str, str] = field(default_factory=dict)
    root: Path = Path("/")


@dataclass(frozen=True)
class CaseResult:
    """How one case ended on one core type.

    `outcome` is measured, failed, timeout, garbled, oom, skipped (a need is not met here) or infrastructure (ours: the
    case may be tried again). `values` holds the values of all runs by metric, warm-up first, and is empty unless
    measured. `evidence` is the end of the output, `samples` one entry for each run, `counters` what `perf stat` saw in
    runs of their own, `settings` those that the case asked for, `programs` the hash of each external file it ran.
    """

    benchmark: str
    version: str
    case: str
    core_type: str
    outcome: str
    reason: str = ""
    warmup: int = 0
    values: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    evidence: str = ""
    samples: tuple[Mapping[str, Any], ...] = ()
    counters: Mapping[str, float] = field(default_factory=dict)
    settings: tuple[Mapping[str, Any], ...] = ()
    programs: Mapping[str, str] = field(default_factory=dict)
