"""The machine that the agent runs on, as a session sees it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.assignment import PlannedBoot, SessionJob
from tidemark_agent.boot.current import CurrentDriver
from tidemark_agent.boot.driver import KernelFiles, RebootDriver
from tidemark_agent.boot.evidence import Evidence, collect_evidence, forget_evidence
from tidemark_agent.boot.grub import GrubDriver
from tidemark_agent.boot.kexec import KexecDriver
from tidemark_agent.boot.reboot import Reboots
from tidemark_agent.boot.running import RunningSystem, running_system
from tidemark_agent.boot.words import command_line
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import InfrastructureError, StoppedError
from tidemark_agent.lab.decide import CURRENT
from tidemark_agent.lab.journal import Journal
from tidemark_agent.lab.kernels import KernelStore
from tidemark_agent.lab.measure import Measuring
from tidemark_agent.lab.progress import Progress, progress_of
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation

# A clean shutdown of a big machine takes a minute or two; then something is wrong.
_REBOOT_SECONDS = 600.0
_PERF = "perf"


@dataclass(frozen=True)
class LabMachine:
    """Everything that a session does to this machine."""

    config: AgentConfig
    journal: Journal
    preparation: Preparation
    kernels: KernelStore
    log: Log
    stop: threading.Event
    tell: Callable[[str], None]
    root: Path = Path("/")

    def running(self) -> RunningSystem:
        return running_system(self.root)

    def driver(self, job: SessionJob) -> RebootDriver:
        reboots = Reboots(self.config.boot, self.root)
        scratch = self._scratch()
        if job.boot_driver == "kexec":
            return KexecDriver(reboots, scratch, self.log, self.stop, self.root)
        if job.boot_driver == "grub":
            return GrubDriver(self.config.boot.grub_environment, reboots, scratch, self.log, self.stop)
        if job.boot_driver == CURRENT:
            return CurrentDriver()
        raise InfrastructureError(f"the boot driver {job.boot_driver} does not work inside the machine that it boots")

    def _scratch(self) -> Path:
        """In memory where that is possible: the way home must not depend on a disk with room."""
        memory = self.root / "run" / "tidemark-agent"
        try:
            memory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return self.config.state_dir
        return memory

    def kernel_files(self, job: SessionJob, boot: PlannedBoot, nonce: str) -> KernelFiles:
        kernel = job.kernels[boot.arm]
        self.kernels.fetch(job.kernels.values(), {_PERF: job.perf} if self._takes_perf(job) else {})
        base = self.config.boot.command_line or self._safe_command_line()
        more = job.options.get("command_line", "")
        if not isinstance(more, str):
            raise InfrastructureError(f"the machine's option command_line is {more!r}")
        return KernelFiles(
            image=self.kernels.image(kernel),
            build_id=kernel.build_id,
            command_line=command_line(base, words=[self.config.boot.words, more], nonce=nonce),
            initramfs=self.kernels.prepare(kernel),
        )

    def _safe_command_line(self) -> str:
        """What the safe kernel was started with: a test kernel's own line has this machine's words in it already."""
        return progress_of(self.journal.entries()).safe_command_line or self.running().command_line

    def evidence(self, nonce: str, known: tuple[str, ...]) -> Evidence:
        return collect_evidence(self.root, nonce, known)

    def forget_evidence(self) -> tuple[str, ...]:
        return tuple(forget_evidence(self.root, self.config.state_dir / "lab" / "pstore"))

    def measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> dict[str, Any]:
        return Measuring(
            config=self._config_for(progress.job),
            journal=self.journal,
            preparation=self.preparation,
            modules=self.kernels.benchmark_modules(progress.job.kernels[boot.arm]),
            log=self.log,
            stop=self.stop,
            tell=self.tell,
            root=self.root,
        ).measure(progress, boot, running)

    def _takes_perf(self, job: SessionJob) -> bool:
        """Whether the session's own perf is used: what the operator names goes first."""
        return bool(job.perf) and _PERF not in self.config.programs

    def _config_for(self, job: SessionJob) -> AgentConfig:
        """The configuration with the session's perf, the same for both arms, where the operator named none."""
        perf = self.kernels.program(_PERF, job.perf) if self._takes_perf(job) else None
        return replace(self.config, programs={**self.config.programs, _PERF: perf}) if perf else self.config

    def wait_for_end(self) -> None:
        if self.stop.wait(_REBOOT_SECONDS):
            raise StoppedError("the machine goes down")
        self.log.failure("no-reboot", seconds=_REBOOT_SECONDS)

    def tidy(self) -> None:
        self.preparation.restore()
        self.kernels.tidy()
