"""The session engine: what comes next, and boots in their order, by ports for how they are made and for the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from tidemark_agent.boot.evidence import RunningSystem
from tidemark_agent.errors import AgentError, InfrastructureError, RefusedError
from tidemark_agent.lab.journal import Journal, Progress, progress_of
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, SessionJob, read_assignment

# What is to be done next in a session: a pure function of its journal and of the kernel that runs.
#
# Nothing here looks at a clock: after a power cut it may say anything.

CURRENT = "current"
# A boot that left no trace may have been a power cut: the same kernel gets this many more tries.
MOST_SILENT = 3
# Armed, and the machine did not go down: more often than a few kills of the agent explain.
MOST_ARMS = 10
# Back to the safe kernel: if the machine comes up in the test kernel each time, asking again does not help.
MOST_LEAVES = 3


class Step(Enum):
    """One thing to do; the journal then says that it was done."""

    CLAIM = "claim"
    ARM = "arm"
    ENTER = "enter"  # record that the wanted kernel has come up
    MEASURE = "measure"
    WRONG = "wrong"  # a kernel runs that is neither safe nor wanted
    JUDGE = "judge"  # the wanted kernel is gone: find out why
    SPOOL = "spool"
    CLOSE = "close"  # nothing is left to boot
    GIVE_UP = "give-up"
    LEAVE = "leave"  # to the safe kernel
    END = "end"


@dataclass(frozen=True)
class Decision:
    step: Step
    boot: PlannedBoot | None = None
    reason: str = ""


def decide(progress: Progress, running: RunningSystem) -> Decision:
    """The next step of a session that has begun and not ended."""
    waiting = sorted(set(progress.outcomes) - progress.spooled)
    if waiting:
        return Decision(Step.SPOOL, next(boot for boot in progress.job.boots if boot.position == waiting[0]))
    if progress.closing is not None:
        if running.is_test_kernel and progress.leaves < MOST_LEAVES:
            return Decision(Step.LEAVE)
        return Decision(Step.END)
    return _decide_next(progress, running) if progress.assignment else Decision(Step.CLAIM)


def _decide_next(progress: Progress, running: RunningSystem) -> Decision:
    trouble = next((o["reason"] for o in progress.outcomes.values() if o["outcome"] == "infrastructure"), None)
    if trouble is not None:
        # The next boot would meet the same trouble and use up its tries.
        return Decision(Step.CLOSE, reason=trouble or "trouble of ours")
    boot = progress.next_boot()
    if boot is None:
        return Decision(Step.CLOSE)
    if progress.job.boot_driver == CURRENT:
        return _decide_current(progress, running, boot)
    return _decide_boot(progress, running, boot)


def _decide_boot(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    armed = progress.armed
    if armed is None:
        return Decision(Step.ARM, boot)
    if running.boot_id == armed.boot_id:
        if progress.arms >= MOST_ARMS:
            return Decision(
                Step.GIVE_UP, boot, f"the machine did not reboot, though it was asked {progress.arms} times"
            )
        return Decision(Step.ARM, boot)
    if running.nonce == armed.nonce:
        return _decide_inside(progress, running, boot)
    if running.is_test_kernel or running.build_id == progress.safe_build_id or progress.booted is not None:
        # A nonce of ours that is not this one: the boot loader read what a power cut left of an earlier boot.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.WRONG, boot)


def _decide_inside(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    """What runs is the boot that was armed: is it the kernel that was wanted?"""
    if running.build_id != progress.job.kernels[boot.arm].build_id:
        return Decision(Step.WRONG, boot)
    booted = progress.booted
    if booted is None:
        return Decision(Step.ENTER, boot)
    if booted.boot_id != running.boot_id:
        # The machine was reset and came up in the same kernel once more, which a one-shot boot must not do.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.MEASURE, boot)


def _decide_current(progress: Progress, running: RunningSystem, boot: PlannedBoot) -> Decision:
    """No reboot: what runs is measured, if it is what was wanted."""
    if progress.armed is None:
        return Decision(Step.ARM, boot)
    if running.build_id != progress.job.kernels[boot.arm].build_id:
        return Decision(Step.WRONG, boot)
    booted = progress.booted
    if booted is None:
        return Decision(Step.ENTER, boot)
    if booted.boot_id != running.boot_id:
        # The machine went down while it measured. Should the kernel die of it each time, that must have an end.
        return Decision(Step.JUDGE, boot)
    return Decision(Step.MEASURE, boot)


class SupersededError(AgentError):
    """The service says that this attempt is over or somebody else's."""


class Boots(Protocol):
    """How the boots of a session are made: by going down into their kernels, or in an emulator beside this system."""

    def running(self) -> RunningSystem: ...

    def check(self, job: SessionJob) -> None:
        """Raise InfrastructureError where this session's boots cannot be made here."""

    def take(self, decision: Decision, progress: Progress, running: RunningSystem) -> dict[str, Any] | None:
        """Take the step that the boot under way is at; its result as the protocol writes it, once there is one.

        Raises StoppedError when the work is ended from outside.
        """

    def leave(self, progress: Progress) -> None:
        """Down, and up in the safe kernel."""

    def tidy(self, progress: Progress) -> None:
        """Put everything back that the session changed here."""


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


_NOT_FOUND = 404


@dataclass(frozen=True)
class Engine:
    """One session that has begun. Each step leaves the journal such that the next process knows where to go on."""

    journal: Journal
    boots: Boots
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
            running = self.boots.running()
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
        if decision.boot is None:
            self._take_session_step(decision, progress)
        elif decision.step is Step.SPOOL:
            self._spool(progress, decision.boot)
        elif decision.step is Step.ARM and not self.service.is_wanted(decision.boot.position):
            self.close("done", "the server wants no more boots")
        else:
            body = self.boots.take(decision, progress, running)
            if body is not None:
                self._record(decision.boot, body)

    def _take_session_step(self, decision: Decision, progress: Progress) -> None:
        if decision.step is Step.CLAIM:
            self._claim()
        elif decision.step is Step.CLOSE:
            self.close("failed" if decision.reason else "done", decision.reason)
        elif decision.step is Step.LEAVE:
            self.boots.leave(progress)
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
            self.boots.check(Progress(assignment=assignment).job)
        except InfrastructureError as error:
            self.close("failed", str(error))
            return
        self.journal.append("claimed", assignment=answer)

    def _spool(self, progress: Progress, boot: PlannedBoot) -> None:
        self.service.store(boot.position, progress.outcomes[boot.position])
        self.journal.append("spooled", position=boot.position)
        # After the last boot it wants no more either, which is nothing to tell.
        if not self.service.deliver() and progress.next_boot() is not None:
            self.close("done", "the server wants no more boots")

    def _end(self, progress: Progress) -> None:
        assert progress.closing is not None
        self.boots.tidy(progress)
        outcome, reason = progress.closing
        if not progress.superseded:
            self.service.end(outcome, reason)
        self.journal.append("ended")
        self.log.info("session-ended", outcome=outcome, reason=reason)

    def _record(self, boot: PlannedBoot, body: Mapping[str, Any]) -> None:
        self.log.info(
            "boot-ended", position=boot.position, arm=boot.arm, outcome=body["outcome"], reason=body["reason"]
        )
        self.journal.append("outcome", position=boot.position, body=body)
