"""The session engine: boots in their order, through ports for how they are made and for the service."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidemark_agent.boot.evidence import RunningSystem
from tidemark_agent.errors import AgentError, InfrastructureError, RefusedError
from tidemark_agent.lab.decision import Decision, Step, decide
from tidemark_agent.lab.journal import Journal, Progress, progress_of
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, SessionJob, read_assignment


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
