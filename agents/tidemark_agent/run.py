"""One attempt from claim to end: a build, a session on an emulated machine, or a power cycle."""

import re
import signal
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidemark_agent.build.kernel import BuildOutcome, KernelBuilder
from tidemark_agent.config import PowerConfig
from tidemark_agent.errors import (
    AgentError,
    InfrastructureError,
    RefusedError,
    StoppedError,
    UnreachableError,
    file_trouble,
)
from tidemark_agent.lab.emulated import EmulatedBoots
from tidemark_agent.lab.hello import say_hello_aside
from tidemark_agent.log import GIVEN_UP, Log
from tidemark_agent.system.disk import try_lock
from tidemark_agent.system.process import clean_environment, heed_stop, run
from tidemark_agent.system.text import clean_text, last_bytes
from tidemark_agent.version import agent_version
from tidemark_agent.wire.assignment import Assignment, BuildJob, PowerJob, read_assignment
from tidemark_agent.wire.client import Client, Lease
from tidemark_agent.wire.host import Place, place_here, token_reader
from tidemark_agent.wire.spool import Spool

_LARGEST_OUTPUT = 1024**2
_LONGEST_EVIDENCE = 400
_NOT_FOUND = 127
_PLACES = re.compile(r"\{[a-z_]+\}")


def cycle_power(job: PowerJob, config: PowerConfig, *, scratch: Path, log: Log, stop: threading.Event) -> str:
    """Run the command to a good end and return the end of what it printed; raises InfrastructureError for any other."""
    words = power_command(config.command, job)
    seconds = min(job.timeout_seconds, config.timeout_seconds) if job.timeout_seconds else config.timeout_seconds
    output = scratch / f"power-{job.machine}.log"
    log.info("power-cycle", machine=job.machine, reason=job.reason, command=words)
    done = run(
        words,
        output=output,
        timeout=seconds,
        stop=stop,
        environment=clean_environment({"HOME": "/"}),
        directory=scratch,
        log_limit=_LARGEST_OUTPUT,
    )
    said = last_bytes(clean_text(output.read_bytes()).strip(), _LONGEST_EVIDENCE)
    output.unlink(missing_ok=True)
    if done.timed_out:
        raise InfrastructureError(f"the power command did not end within {seconds:.0f} s: {said}".rstrip(": "))
    if done.code == _NOT_FOUND:
        raise InfrastructureError(f"the power command cannot be run: {said}")
    if done.code != 0:
        # A failure takes the machine out of service: not for a stop that ended the command before the agent.
        heed_stop(stop)
        raise InfrastructureError(f"the power command failed with {done.code}: {said}".rstrip(": "))
    return said


def power_command(command: tuple[str, ...], job: PowerJob) -> list[str]:
    """The operator's words with {machine} and {node} filled in. No shell ever reads them."""
    if not command:
        raise InfrastructureError("this host switches no power: power.command is not in its configuration")
    for word in command:
        if unknown := _PLACES.findall(word.replace("{machine}", "").replace("{node}", "")):
            raise InfrastructureError(f"power.command has {unknown[0]}, which nothing is known for")
    return [word.replace("{machine}", job.machine).replace("{node}", job.node) for word in command]


DONE, FAILED, REFUSED, UNREACHABLE = 0, 1, 3, 75
_LOCK_PATIENCE = 1.0
_CLAIM_PATIENCE = 600.0
_LAST_PATIENCE = 600.0
_GOODBYE_PATIENCE = 5.0
_DRAIN_PAUSE = 10.0
_CONFLICT = 409
_STOPPED = "stopped by a controller or an operator"


@dataclass(frozen=True)
class Settings:
    """Where the server is, where the agent keeps its things, and what the operator decided.

    `jobs` 0 means as many as the service says; `ccache` None: below `state`.
    """

    server: str
    token_file: Path
    state: Path
    ca_file: Path | None = None
    ccache: Path | None = None
    jobs: int = 0
    git_credentials: Path | None = None
    power: PowerConfig = field(default_factory=PowerConfig)
    place: Place = field(default_factory=place_here)


@dataclass(frozen=True)
class Worker:
    """One attempt, from claim to end."""

    key: str
    settings: Settings
    client: Client
    spool: Spool
    log: Log
    stop: threading.Event

    def work(self) -> int:
        """Returns the exit status of the process."""
        # What earlier runs left goes first: the server then does not plan those boots again.
        self.spool.upload(self.client, patience=_CLAIM_PATIENCE, all_at_once=True)
        claim = self.settings.place.body()
        try:
            answer = self.client.post(f"attempts/{self.key}/claim", claim, patience=_CLAIM_PATIENCE)
        except RefusedError as error:
            self.log.info("claim-refused", reason=str(error))
            return DONE if error.status == _CONFLICT else REFUSED
        try:
            assignment = read_assignment(answer)
        except InfrastructureError as error:
            self._end("failed", str(error), patience=_LAST_PATIENCE)
            return FAILED
        return self._hold(assignment, answer)

    def _hold(self, assignment: Assignment, answer: Mapping[str, Any]) -> int:
        log = self.log.bind(trace=assignment.trace)
        log.info("attempt-claimed", agent=self.client.agent, version=agent_version())
        lease = Lease(self.client, self.key, seconds=assignment.lease_seconds, stop=self.stop, log=log)
        _end_on_signals(lease)
        if self.stop.is_set():
            # The signal came while the work was claimed.
            lease.end(_STOPPED)
        with lease:
            reason = self._failure(assignment, answer, lease, log)
            if not lease.reason:
                # The lease goes on while results wait for a server that is away.
                unsent = self._drain()
                reason = reason or unsent
        if lease.superseded:
            return DONE
        patience = _GOODBYE_PATIENCE if lease.reason else _LAST_PATIENCE
        self.stop.clear()
        # Whoever ends an agent has nothing against its work, nor against its host: the service plans it again.
        outcome = "done" if not reason else "stopped" if lease.reason == _STOPPED else "failed"
        self._end(outcome, reason, patience=patience)
        log.info("attempt-ended", outcome=outcome, reason=reason)
        return FAILED if reason else DONE

    def _failure(self, assignment: Assignment, answer: Mapping[str, Any], lease: Lease, log: Log) -> str:
        """Do the work; why it failed, or ""."""
        try:
            if isinstance(assignment.job, BuildJob):
                return self._build(assignment.job, lease, log)
            if isinstance(assignment.job, PowerJob):
                power, state = self.settings.power, self.settings.state
                said = cycle_power(assignment.job, power, scratch=state, log=log, stop=self.stop)
                log.info("power-cycled", machine=assignment.job.machine, said=said)
                return ""
            boots = EmulatedBoots(self.key, assignment.job, self.settings.state, self.client, lease, log, self.stop)
            return boots.run(answer, self.spool, patience=assignment.lease_seconds / 4)
        except StoppedError as error:
            return lease.reason or str(error)
        except (AgentError, OSError) as error:
            reason = file_trouble(error) if isinstance(error, OSError) else str(error)
            log.failure("attempt-failed", reason=reason)
            if self._is_being_stopped():
                return lease.reason or "the work was ended from outside"
            return reason

    def _is_being_stopped(self) -> bool:
        """Whether a stop comes that ended a program of this work before it reached the agent."""
        try:
            heed_stop(self.stop)
        except StoppedError:
            return True
        return False

    def _build(self, job: BuildJob, lease: Lease, log: Log) -> str:
        settings = self.settings
        builder = KernelBuilder(
            job=replace(job, jobs=settings.jobs) if settings.jobs else job,
            work=settings.state / "work",
            ccache=settings.ccache or settings.state / "ccache",
            log=log,
            stop=self.stop,
            progress=lambda text: setattr(lease, "progress", text),
            git_credentials=settings.git_credentials,
        )
        path = f"attempts/{self.key}/build"
        with builder.built() as outcome:
            if outcome.outcome == "failed":
                lease.require()
            elif outcome.outcome == "infrastructure":
                # What failed may have been ended together with the agent: it then says nothing about the builder.
                heed_stop(self.stop)
            trouble = self._spool_build(path, outcome)
        if trouble:
            # No room even for the result: it is small, so it goes without its files and without the spool.
            log.failure("spool-failed", reason=trouble)
            poor = BuildOutcome("infrastructure", outcome.seconds, trouble)
            self.client.post(path, build_body(poor, []), patience=_LAST_PATIENCE)
            return trouble
        return outcome.reason if outcome.outcome == "infrastructure" else ""

    def _spool_build(self, path: str, outcome: BuildOutcome) -> str:
        """Copy the result and its files into the spool; why that failed, or ""."""
        try:
            artifacts = [_artifact(self.spool, kind, file) for kind, file in outcome.files.items()]
            self.spool.put(path, build_body(outcome, artifacts), artifacts=tuple(a["sha256"] for a in artifacts))
        except OSError as error:
            return file_trouble(error)
        return ""

    def _drain(self) -> str:
        """Send what this attempt still has; why that failed, or ""."""
        deadline = time.monotonic() + _LAST_PATIENCE
        try:
            self.spool.upload(self.client, patience=_LAST_PATIENCE)
            while self.spool.has(f"attempts/{self.key}/"):
                if time.monotonic() > deadline or self.stop.wait(_DRAIN_PAUSE):
                    return "results wait in the spool: the server does not take them"
                self.spool.upload(self.client, patience=_LAST_PATIENCE)
        except UnreachableError as error:
            return f"results wait in the spool: {error}"
        return self.spool.refusal(f"attempts/{self.key}/")

    def _end(self, outcome: str, reason: str, *, patience: float) -> None:
        body = {"outcome": outcome, "reason": reason[:500]}
        try:
            self.client.post(f"attempts/{self.key}/end", body, patience=patience)
        except (RefusedError, UnreachableError) as error:
            self.log.warning("end-not-heard", reason=str(error))


def run_attempt(key: str, settings: Settings) -> int:
    """Run one attempt; a second process with the same key ends at once."""
    log = Log(key=key)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Whoever only asks whether an agent lives holds the lock for an instant: that must not send this one away.
    lock = try_lock(settings.state / f"{key}.lock", patience=_LOCK_PATIENCE)
    if lock is None:
        log.info("already-running")
        return DONE
    stop = threading.Event()
    _stop_on_signals(stop)
    token = token_reader(settings.token_file, log)
    try:
        token()
    except OSError as error:
        log.failure("token-unreadable", reason=str(error))
        return REFUSED
    client = Client(
        server=settings.server, token=token, agent=uuid.uuid4().hex, log=log, stop=stop, ca_file=settings.ca_file
    )
    say_hello_aside(client, log, token_file=settings.token_file, key=key, boots=False)
    spool = Spool(settings.state / "spool", owner=settings.token_file, log=log)
    try:
        return Worker(key=key, settings=settings, client=client, spool=spool, log=log, stop=stop).work()
    except UnreachableError as error:
        log.failure(GIVEN_UP, reason=str(error))
        return UNREACHABLE
    except Exception:  # the edge of the process
        log.exception("agent-crashed")
        return FAILED


def build_body(outcome: BuildOutcome, artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    """A build result as the protocol writes it."""
    return {
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "build_id": outcome.build_id,
        "text_hash": outcome.text_hash,
        "kernel_hash": outcome.kernel_hash,
        "compiler_version": outcome.compiler_version,
        "first_error": outcome.first_error,
        "log_tail": outcome.log_tail,
        "unfit": outcome.unfit,
        "artifacts": artifacts,
    }


def _artifact(spool: Spool, kind: str, file: Path) -> dict[str, Any]:
    sha256, size = spool.put_artifact(file)
    return {"kind": kind, "sha256": sha256, "size": size}


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _end_on_signals(lease: Lease) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: lease.end(_STOPPED))
