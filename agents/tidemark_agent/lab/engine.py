"""The session engine: boots in their order, through ports for machine, service and measuring."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tidemark_agent.boot.driver import KernelFiles, RebootDriver
from tidemark_agent.boot.evidence import Evidence, RunningSystem
from tidemark_agent.errors import AgentError, InfrastructureError, RefusedError, file_trouble
from tidemark_agent.lab.decision import CURRENT, MOST_SILENT, Decision, Step, decide
from tidemark_agent.lab.journal import Journal, Progress, progress_of
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, SessionJob, read_assignment


class SupersededError(AgentError):
    """The service says that this attempt is over or somebody else's."""


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


class Service(Protocol):
    """The server, as far as one attempt is concerned."""

    def claim(self) -> Mapping[str, Any]:
        """The assignment. Raises SupersededError, RefusedError, UnreachableError."""

    def hold(self, assignment: Assignment) -> None:
        """Begin to renew the lease, if that is not done already."""

    def release(self) -> None:
        """Renew the lease no more."""

    def is_wanted(self, position: int) -> bool:
        """Whether this boot is to be made; unknown counts as yes. Raises SupersededError."""

    def tell(self, progress: str) -> None:
        """What heartbeats say from now on."""

    def announce_reboot(self) -> None:
        """The last heartbeat before the machine goes down. Raises StoppedError when the server wants no more."""

    def trouble(self) -> str:
        """Why results could not be kept, or "": then nothing is to be measured."""

    def store(self, position: int, body: Mapping[str, Any]) -> None:
        """Put the result into the spool unless it is there; raises OSError."""

    def deliver(self) -> bool:
        """Try to send what waits; False when the server's answer says that no more is wanted."""

    def end(self, outcome: str, reason: str) -> None:
        """Send what waits, with much patience, then say that the attempt is over."""


# A test kernel that cannot start the next one: back to the safe kernel, which can.
_MOST_RETURNS = 3
_NOT_FOUND = 404
_LONGEST_REASON = 500


@dataclass(frozen=True)
class Engine:
    """One session that has begun. Each step leaves the journal such that the next process knows where to go on."""

    journal: Journal
    machine: Machine
    service: Service
    log: Log

    def run(self) -> None:
        """Until the session has ended, or was claimed: then all that is logged is to carry its trace.

        Raises StoppedError when told to end, and the errors of the service.
        """
        while True:
            progress = progress_of(self.journal.entries())
            if progress.ended:
                return
            running = self.machine.running()
            decision = decide(progress, running)
            self.log.info("step", step=decision.step.value, position=decision.boot and decision.boot.position)
            try:
                self._take(decision, progress, running)
            except SupersededError as error:
                self.close("failed", str(error), superseded=True)
            if decision.step is Step.CLAIM:
                return

    def stopped(self, reason: str, *, superseded: bool) -> None:
        """The server asked for the end. After the last boot it does so, too: then all is done."""
        progress = progress_of(self.journal.entries())
        is_done = progress.assignment is not None and progress.next_boot() is None and not superseded
        self.close(*("done", "") if is_done else ("failed", reason), superseded=superseded)

    def close(self, outcome: str, reason: str, *, superseded: bool = False) -> None:
        """Nothing more is to be booted: from now on the session only goes home."""
        if progress_of(self.journal.entries()).closing is None:
            self.journal.append("closing", outcome=outcome, reason=reason, superseded=superseded)

    def _take(self, decision: Decision, progress: Progress, running: RunningSystem) -> None:
        if progress.closing is not None:
            # Its answers could only ask for what is being done already.
            self.service.release()
        elif progress.assignment is not None:
            self.service.hold(progress.assignment)
        boot = decision.boot
        if boot is None:
            self._take_session_step(decision, progress)
            return
        steps: Mapping[Step, Callable[[], None]] = {
            Step.ARM: lambda: self._arm(progress, boot, running),
            Step.ENTER: lambda: self._enter(progress, boot, running),
            Step.MEASURE: lambda: self._measure(progress, boot, running),
            Step.WRONG: lambda: self._wrong(progress, boot, running),
            Step.JUDGE: lambda: self._judge(progress, boot, running),
            Step.SPOOL: lambda: self._spool(progress, boot),
            Step.GIVE_UP: lambda: self._fail(progress, boot, "infrastructure", decision.reason),
        }
        steps[decision.step]()

    def _take_session_step(self, decision: Decision, progress: Progress) -> None:
        if decision.step is Step.CLAIM:
            self._claim()
        elif decision.step is Step.CLOSE:
            self.close("failed" if decision.reason else "done", decision.reason)
        elif decision.step is Step.LEAVE:
            self._leave("leaving", progress)
        else:
            self._end(progress)

    def _claim(self) -> None:
        try:
            answer = self.service.claim()
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise
            raise SupersededError(str(error)) from error
        try:
            assignment = read_assignment(answer)
            self.machine.driver(Progress(assignment=assignment).job).check()
        except InfrastructureError as error:
            self.close("failed", str(error))
            return
        self.journal.append("claimed", assignment=answer)

    def _arm(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        if not self.service.is_wanted(boot.position):
            self.close("done", "the server wants no more boots")
            return
        self.service.tell(f"boot {boot.position} ({boot.arm}): starting its kernel")
        try:
            self._go(progress, boot, running)
        except (InfrastructureError, OSError) as error:
            reason = file_trouble(error) if isinstance(error, OSError) else str(error)
            self.log.failure("boot-not-armed", position=boot.position, reason=reason)
            if running.is_test_kernel and progress.returns < _MOST_RETURNS:
                self._leave("returning", progress)
            else:
                self._fail(progress, boot, "infrastructure", reason)

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

    def _measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        self.service.tell(f"boot {boot.position} ({boot.arm}): measuring")
        try:
            body = self.machine.measure(progress, boot, running)
        except InfrastructureError as error:
            self._fail(progress, boot, "infrastructure", str(error), boot_id=running.boot_id, build_id=running.build_id)
        except (AgentError, OSError):
            raise
        except Exception as error:
            # What a kernel under test shows of itself may be anything. The agent must get home from it.
            self.log.exception("measuring-failed", position=boot.position)
            reason = f"the agent failed while it measured: {error!r}"[:_LONGEST_REASON]
            self._fail(progress, boot, "infrastructure", reason, boot_id=running.boot_id, build_id=running.build_id)
        else:
            self._record(boot, body)

    def _wrong(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        armed = progress.armed
        found = (
            self.machine.evidence(armed.nonce, armed.known) if armed and armed.nonce != running.nonce else Evidence()
        )
        if found.panic:
            # Not the boot that was armed: that one died, and what came up after it is nobody's doing.
            self._fail(progress, boot, "panic", found.panic, tail=found.tail)
            return
        wanted = progress.job.kernels[boot.arm].build_id
        reason = f"build id {running.build_id or 'missing'} is running, {wanted} was wanted"
        self._fail(progress, boot, "wrong-kernel", reason, boot_id=running.boot_id, build_id=running.build_id)

    def _judge(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> None:
        """The kernel is gone. A panic on record is its own fault; without any trace it may have been a power cut."""
        armed = progress.armed
        assert armed is not None
        # A boot without a nonce was started by somebody else: no record can be told to be its own.
        found = self.machine.evidence(armed.nonce, armed.known) if armed.nonce else Evidence()
        if found.panic:
            self._fail(progress, boot, "panic", found.panic, tail=found.tail)
        elif progress.silent < MOST_SILENT:
            self.log.warning("boot-without-trace", position=boot.position, times=progress.silent + 1)
            self.journal.append("silent", position=boot.position, boot_id=running.boot_id)
        else:
            times = f"{progress.silent + 1} boots of this kernel"
            if progress.ever_booted:
                reason = f"{times} ended while measuring, with nothing on record that says why"
                self._fail(progress, boot, "panic", reason, tail=found.tail)
            else:
                reason = f"{times} did not reach the agent, with nothing on record that says why"
                self._fail(progress, boot, "no-boot", reason, tail=found.tail)

    def _spool(self, progress: Progress, boot: PlannedBoot) -> None:
        self.service.store(boot.position, progress.outcomes[boot.position])
        self.journal.append("spooled", position=boot.position)
        # After the last boot it wants no more either, which is nothing to tell.
        if not self.service.deliver() and progress.next_boot() is not None:
            self.close("done", "the server wants no more boots")

    def _leave(self, event: str, progress: Progress) -> None:
        """Down, and up in the safe kernel."""
        self.journal.append(event)
        self._disarm(progress)
        self.service.announce_reboot()
        self.machine.driver(progress.job).leave()
        self.machine.wait_for_end()

    def _end(self, progress: Progress) -> None:
        assert progress.closing is not None
        if progress.assignment is not None:
            self._disarm(progress)
        self.machine.tidy()
        outcome, reason = progress.closing
        if not progress.superseded:
            self.service.end(outcome, reason)
        self.journal.append("ended")
        self.log.info("session-ended", outcome=outcome, reason=reason)

    def _disarm(self, progress: Progress) -> None:
        try:
            self.machine.driver(progress.job).disarm()
        except (InfrastructureError, OSError) as error:
            # The session must get home all the same, and a one-shot boot is over after one boot.
            self.log.failure("not-disarmed", reason=str(error))

    def _fail(self, progress: Progress, boot: PlannedBoot, outcome: str, reason: str, **proof: str) -> None:
        self._record(boot, failed_body(outcome, reason, began=progress.armed_at, **proof))

    def _record(self, boot: PlannedBoot, body: Mapping[str, Any]) -> None:
        self.log.info(
            "boot-ended", position=boot.position, arm=boot.arm, outcome=body["outcome"], reason=body["reason"]
        )
        self.journal.append("outcome", position=boot.position, body=body)


def failed_body(
    outcome: str, reason: str, *, began: float, tail: str = "", boot_id: str = "", build_id: str = ""
) -> dict[str, Any]:
    """A boot result without measurements, as the protocol writes it. `began` is a wall clock's, for people."""
    return {
        "outcome": outcome,
        "reason": reason,
        "boot_id": boot_id,
        "build_id": build_id,
        "started_at": moment(began) if began else None,
        "ended_at": datetime.now(UTC).isoformat(),
        "console_tail": tail,
    }


def moment(seconds: float) -> str:
    """A journal's wall-clock time as the protocol writes it; now, where the clock had jumped out of all calendars."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):
        return datetime.now(UTC).isoformat()
