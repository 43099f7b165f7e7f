"""Measuring inside a boot, watched."""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, Self

from tidemark_agent.boot.evidence import RunningSystem, kernel_log_tail
from tidemark_agent.cases.programs import CaseResult, Surroundings
from tidemark_agent.cases.runner import CaseRunner
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.lab.journal import Journal, Progress
from tidemark_agent.lab.result import boot_result, failed_body
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation, Sampler, common_cpus, scheduling_noise, wait_until_quiet
from tidemark_agent.probe import CoreKind, probe_system
from tidemark_agent.wire.assignment import PlannedBoot, PlannedCase

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


# A case in which the agent dies each time would else be begun for ever.
_MOST_BEGINNINGS = 3
# Trouble of ours in one case gets one more try.
_TRIES = 2
_LONGEST_REASON = 500


class Cases(Protocol):
    """Runs one case with its settings, and says whether the machine's settings outlived it."""

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult: ...

    def verify(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class CaseLoop:
    """The cases of one boot on all core types.

    `results` are CaseResults as JSON, those that an agent of this same boot journaled to begin with; the list grows, so
    that what is there counts however the loop ends.
    """

    journal: Journal
    position: int
    cases: Sequence[PlannedCase]
    cores: Sequence[CoreKind]
    begun: Mapping[tuple[str, str, str], int]
    results: list[dict[str, Any]]
    log: Log
    tell: Callable[[str], None]

    def run(self, runner: Cases) -> None:
        """Run what has no result yet. Raises StoppedError."""
        results = self.results
        ready = {(r["benchmark"], r["case"], r["core_type"]) for r in results}
        total = len(self.cases) * len(self.cores)
        for core in self.cores:
            for case in self.cases:
                if (case.benchmark, case.case, core.name) in ready:
                    continue
                self.tell(f"boot {self.position}: case {len(results) + 1} of {total}, {case.benchmark}/{case.case}")
                result = asdict(self._result(runner, case, core))
                self.journal.append("case", position=self.position, result=result)
                results.append(result)

    def _result(self, runner: Cases, case: PlannedCase, core: CoreKind) -> CaseResult:
        names = {"benchmark": case.benchmark, "case": case.case, "core_type": core.name}
        times = self.begun.get((case.benchmark, case.case, core.name), 0)
        if times >= _MOST_BEGINNINGS:
            return _trouble(case, core, f"the agent ended {times} times while it ran")
        self.journal.append("case-begun", position=self.position, **names)
        for left in reversed(range(_TRIES)):
            result = self._once(runner, case, core)
            self.log.info("case-ended", **names, outcome=result.outcome, reason=result.reason)
            if result.outcome != "infrastructure" or not left:
                break
        return result

    @staticmethod
    def _once(runner: Cases, case: PlannedCase, core: CoreKind) -> CaseResult:
        try:
            result = runner.run(case, core)
            changed = runner.verify()
        except InfrastructureError as error:
            return _trouble(case, core, str(error))
        if changed:
            reason = f"settings changed while it ran: {'; '.join(changed)}"
            return replace(result, outcome="infrastructure", reason=reason[:_LONGEST_REASON], values={})
        return result


def _trouble(case: PlannedCase, core: CoreKind, reason: str) -> CaseResult:
    return CaseResult(
        benchmark=case.benchmark,
        version=case.version,
        case=case.case,
        core_type=core.name,
        outcome="infrastructure",
        reason=reason[:_LONGEST_REASON],
    )


class Deadline:
    """Sets `stop` when the time of a boot is over. The time counts from the kernel's start, whatever the agent does."""

    def __init__(self, seconds: float, stop: threading.Event, log: Log) -> None:
        left = seconds - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._stop = stop
        self._log = log
        self._timer = threading.Timer(max(0.0, left), self._end)
        self._timer.daemon = True
        self.is_over = False

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()
        # If its time came just now, all that it does is done when this returns.
        self._timer.join()

    def _end(self) -> None:
        self.is_over = True
        self._log.failure("boot-out-of-time")
        self._stop.set()


@dataclass(frozen=True)
class PreparedCases:
    """Runs cases on a prepared machine, each with the settings that its benchmark asks for."""

    runner: CaseRunner
    preparation: Preparation

    def run(self, case: PlannedCase, core: CoreKind) -> CaseResult:
        return self.runner.run(case, core, self.preparation.case)

    def verify(self) -> tuple[str, ...]:
        return self.preparation.verify()


@dataclass
class _Seen:
    """What is known of the boot so far, for the result of one that does not come to its end."""

    facts: Mapping[str, Any]
    cores: Sequence[CoreKind]
    settings: Sequence[Mapping[str, Any]] = ()
    noise: Sequence[Mapping[str, Any]] = ()
    results: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Measuring:
    """Measures in the running kernel. `modules` are the benchmark modules built with it, None if there are none."""

    config: AgentConfig
    journal: Journal
    preparation: Preparation
    modules: Path | None
    log: Log
    stop: threading.Event
    tell: Callable[[str], None]
    root: Path = Path("/")

    def measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> dict[str, Any]:
        """The boot result. Raises StoppedError when the work was ended from outside, not by the boot's own deadline."""
        began = progress.booted.at if progress.booted else progress.armed_at
        proof = {"boot_id": running.boot_id, "build_id": running.build_id}
        facts = probe_system(self.root)
        seen = _Seen(facts.as_json(), facts.core_types, results=progress.results)
        seconds = progress.job.boot_timeout_seconds
        limit = Deadline(seconds, self.stop, self.log)
        # Only a kernel under test hangs. One that was not started for this has no deadline either: it is up for days.
        trouble = ""
        device = self.config.boot.watchdog if running.is_test_kernel else ""
        with limit if running.is_test_kernel else nullcontext(), Watchdog(device, seconds, self.log):
            try:
                self._measure(progress, boot, seen)
            except StoppedError:
                if not limit.is_over:
                    raise
            except InfrastructureError as error:
                trouble = str(error) or type(error).__name__
            finally:
                self.preparation.restore()
        if limit.is_over:
            # Only the cases were to be ended by it, whatever they had come to.
            self.stop.clear()
        if trouble:
            return {**failed_body("infrastructure", trouble, began=began, **proof), "facts": dict(seen.facts)}
        return boot_result(
            results=seen.results,
            cases=progress.job.cases,
            cores=seen.cores,
            settings=seen.settings,
            noise=seen.noise,
            facts=seen.facts,
            began=began,
            proof=proof,
            console_tail=kernel_log_tail(),
            out_of_time=limit.is_over,
        )

    def _measure(self, progress: Progress, boot: PlannedBoot, seen: _Seen) -> None:
        self.preparation.replay()
        applied = self.preparation.apply()
        seen.settings = [setting.as_json() for setting in applied]
        seen.cores = self._measured_cores(seen.cores)
        measured = self.preparation.measured_cpus()
        sampler = Sampler(self.root, cpus=measured)
        surroundings = Surroundings(
            state=self.config.state_dir,
            programs=self.config.programs,
            pins=self.config.pins,
            modules=self.modules,
            core_types=tuple(seen.cores),
            log=self.log,
            stop=self.stop,
            sample=sampler.sample,
            with_counters=self.config.counters,
            root=self.root,
        )
        self.journal.append("prepared", position=boot.position, settings=seen.settings)
        wait_until_quiet(self.root, stop=self.stop, log=self.log)
        seen.noise = scheduling_noise(measured, scratch=self.config.state_dir, stop=self.stop, log=self.log)
        loop = CaseLoop(
            journal=self.journal,
            position=boot.position,
            cases=progress.job.cases,
            cores=seen.cores,
            begun=progress.begun,
            results=progress.results,
            log=self.log,
            tell=self.tell,
        )
        loop.run(PreparedCases(CaseRunner(surroundings), self.preparation))

    def _measured_cores(self, cores: Sequence[CoreKind]) -> list[CoreKind]:
        """Each kind of core without the CPUs that keep the house; a kind that has no other is not measured."""
        measured = self.preparation.measured_cpus()
        kept = [replace(core, cpus=common_cpus(core.cpus, measured)) for core in cores]
        return [core for core in kept if core.cpus]
