"""Boots of the machine that the agent itself runs on: it goes down into the kernel, and the agent comes up inside."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidemark_agent.boot.driver import KernelFiles, RebootDriver
from tidemark_agent.boot.evidence import Evidence, RunningSystem
from tidemark_agent.errors import AgentError, InfrastructureError, file_trouble
from tidemark_agent.lab.engine import CURRENT, MOST_SILENT, Decision, Service, Step
from tidemark_agent.lab.journal import Journal, Progress
from tidemark_agent.lab.result import failed_body
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import PlannedBoot, SessionJob

# A test kernel that cannot start the next one: back to the safe kernel, which can.
_MOST_RETURNS = 3
_LONGEST_REASON = 500


class Machine(Protocol):
    """The machine that the agent runs on."""

    def running(self) -> RunningSystem: ...

    def driver(self, job: SessionJob) -> RebootDriver:
        """The boot driver that the session wants; raises InfrastructureError for one that this agent has not."""

    def kernel_files(self, job: SessionJob, boot: PlannedBoot, nonce: str) -> KernelFiles:
        """Fetch and install the kernel of a boot; raises InfrastructureError."""

    def evidence(self, nonce: str, known: tuple[str, ...]) -> Evidence: ...

    def forget_evidence(self) -> tuple[str, ...]:
        """Take old evidence out of the way; the names of what could not be."""

    def measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> dict[str, Any]:
        """Run the cases in the wanted kernel; the boot result as the protocol writes it, without the agent's name.

        Raises StoppedError when the work is ended from outside.
        """

    def wait_for_end(self) -> None:
        """Wait for the reboot that was asked for; returns if it does not come. Raises StoppedError when told to end."""

    def tidy(self) -> None:
        """Put everything back that sessions changed on this machine and its disks."""


Body = dict[str, Any]


@dataclass(frozen=True)
class RebootedBoots:
    """Each step leaves the journal such that the next process, in whichever kernel, knows where to go on."""

    journal: Journal
    machine: Machine
    service: Service
    log: Log

    def running(self) -> RunningSystem:
        return self.machine.running()

    def check(self, job: SessionJob) -> None:
        self.machine.driver(job).check()

    def take(self, decision: Decision, progress: Progress, running: RunningSystem) -> Body | None:
        boot = decision.boot
        assert boot is not None
        steps: Mapping[Step, Callable[[], Body | None]] = {
            Step.ARM: lambda: self._arm(progress, boot, running),
            Step.ENTER: lambda: self._enter(progress, boot, running),
            Step.MEASURE: lambda: self._measure(progress, boot, running),
            Step.WRONG: lambda: self._wrong(progress, boot, running),
            Step.JUDGE: lambda: self._judge(progress, boot, running),
            Step.GIVE_UP: lambda: _failed(progress, "infrastructure", decision.reason),
        }
        return steps[decision.step]()

    def leave(self, progress: Progress) -> None:
        self._leave("leaving", progress)

    def tidy(self, progress: Progress) -> None:
        if progress.assignment is not None:
            self._disarm(progress)
        self.machine.tidy()

    def _arm(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> Body | None:
        self.service.tell(f"boot {boot.position} ({boot.arm}): starting its kernel")
        try:
            self._go(progress, boot, running)
        except (InfrastructureError, OSError) as error:
            reason = file_trouble(error) if isinstance(error, OSError) else str(error)
            self.log.failure("boot-not-armed", position=boot.position, reason=reason)
            if running.is_test_kernel and progress.returns < _MOST_RETURNS:
                self._leave("returning", progress)
            else:
                return _failed(progress, "infrastructure", reason)
        return None

    def _go(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        if trouble := self.service.trouble():
            raise InfrastructureError(trouble)
        job = progress.job
        driver = self.machine.driver(job)
        if job.boot_driver == CURRENT:
            self.journal.append("armed", position=boot.position, nonce="", boot_id=running.boot_id, known=[])
            return
        nonce = secrets.token_hex(16)
        files = self.machine.kernel_files(job, boot, nonce)
        known = self.machine.forget_evidence()
        # Written before it is armed: whatever comes up with this nonce is known to be this boot.
        self.journal.append("armed", position=boot.position, nonce=nonce, boot_id=running.boot_id, known=list(known))
        driver.arm(files)
        self.service.announce_reboot()
        driver.reboot()
        self.machine.wait_for_end()

    def _enter(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        self.journal.append("booted", position=boot.position, nonce=running.nonce, boot_id=running.boot_id)
        # Should the boot loader not have forgotten its one-shot choice, this does it before anything can go wrong.
        self._disarm(progress)

    def _measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> Body | None:
        self.service.tell(f"boot {boot.position} ({boot.arm}): measuring")
        proof = {"boot_id": running.boot_id, "build_id": running.build_id}
        try:
            return self.machine.measure(progress, boot, running)
        except InfrastructureError as error:
            return _failed(progress, "infrastructure", str(error), **proof)
        except (AgentError, OSError):
            raise
        except Exception as error:
            # What a kernel under test shows of itself may be anything. The agent must get home from it.
            self.log.exception("measuring-failed", position=boot.position)
            reason = f"the agent failed while it measured: {error!r}"[:_LONGEST_REASON]
            return _failed(progress, "infrastructure", reason, **proof)

    def _wrong(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> Body | None:
        armed = progress.armed
        found = (
            self.machine.evidence(armed.nonce, armed.known) if armed and armed.nonce != running.nonce else Evidence()
        )
        if found.panic:
            # Not the boot that was armed: that one died, and what came up after it is nobody's doing.
            return _failed(progress, "panic", found.panic, tail=found.tail)
        wanted = progress.job.kernels[boot.arm].build_id
        reason = f"build id {running.build_id or 'missing'} is running, {wanted} was wanted"
        return _failed(progress, "wrong-kernel", reason, boot_id=running.boot_id, build_id=running.build_id)

    def _judge(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> Body | None:
        """The kernel is gone. A panic on record is its own fault; without any trace it may have been a power cut."""
        armed = progress.armed
        assert armed is not None
        # A boot without a nonce was started by somebody else: no record can be told to be its own.
        found = self.machine.evidence(armed.nonce, armed.known) if armed.nonce else Evidence()
        if found.panic:
            return _failed(progress, "panic", found.panic, tail=found.tail)
        if progress.silent < MOST_SILENT:
            self.log.warning("boot-without-trace", position=boot.position, times=progress.silent + 1)
            self.journal.append("silent", position=boot.position, boot_id=running.boot_id)
            return None
        arrived = progress.ever_booted
        outcome, what = ("panic", "ended while measuring") if arrived else ("no-boot", "did not reach the agent")
        reason = f"{progress.silent + 1} boots of this kernel {what}, with nothing on record that says why"
        return _failed(progress, outcome, reason, tail=found.tail)

    def _leave(self, event: str, progress: Progress) -> None:
        """Down, and up in the safe kernel."""
        self.journal.append(event)
        self._disarm(progress)
        self.service.announce_reboot()
        self.machine.driver(progress.job).leave()
        self.machine.wait_for_end()

    def _disarm(self, progress: Progress) -> None:
        try:
            self.machine.driver(progress.job).disarm()
        except (InfrastructureError, OSError) as error:
            # The session must get home all the same, and a one-shot boot is over after one boot.
            self.log.failure("not-disarmed", reason=str(error))


def _failed(progress: Progress, outcome: str, reason: str, **proof: str) -> Body:
    return failed_body(outcome, reason, began=progress.armed_at, **proof)
