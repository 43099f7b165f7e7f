"""One boot seen from inside: facts, settings, cases, result."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.assignment import PlannedBoot, PlannedCase
from tidemark_agent.boot.running import RunningSystem, kernel_log_tail
from tidemark_agent.cases.model import CaseResult, Surroundings
from tidemark_agent.cases.runner import CaseRunner
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.lab.engine import failed_body
from tidemark_agent.lab.inside import CaseLoop, Deadline
from tidemark_agent.lab.journal import Journal
from tidemark_agent.lab.progress import Progress
from tidemark_agent.lab.result import boot_result
from tidemark_agent.lab.watchdog import Watchdog
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation, Sampler, common_cpus, scheduling_noise, wait_until_quiet
from tidemark_agent.probe import CoreKind, probe_system


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
