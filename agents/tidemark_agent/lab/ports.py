"""What a session needs of the world: the machine, the service, and the spool. Tests have their own."""

from collections.abc import Mapping
from typing import Any, Protocol

from tidemark_agent.assignment import Assignment, PlannedBoot, SessionJob
from tidemark_agent.boot.driver import KernelFiles, RebootDriver
from tidemark_agent.boot.evidence import Evidence
from tidemark_agent.boot.running import RunningSystem
from tidemark_agent.errors import AgentError
from tidemark_agent.lab.progress import Progress


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
