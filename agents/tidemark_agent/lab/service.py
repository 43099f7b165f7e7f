"""`service`: works on the installed attempt, across reboots; run at each boot."""

import contextlib
import os
import signal
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.boot.driver import Reboots
from tidemark_agent.boot.evidence import running_system
from tidemark_agent.config import DEFAULT_CONFIG, AgentConfig, ConfigError, read_config
from tidemark_agent.errors import (
    InfrastructureError,
    RefusedError,
    StoppedError,
    UnauthorizedError,
    UnreachableError,
    file_trouble,
)
from tidemark_agent.lab.asking import Asking
from tidemark_agent.lab.engine import Engine
from tidemark_agent.lab.hello import PATIENCE_SECONDS, forget_key, installed_by, installed_key, say_hello_aside
from tidemark_agent.lab.journal import Journal, JournalError, Progress, progress_of
from tidemark_agent.lab.machine import KernelStore, LabMachine
from tidemark_agent.lab.rebooted import RebootedBoots
from tidemark_agent.lab.result import failed_body
from tidemark_agent.lab.uplink import LiveLog, Uplink
from tidemark_agent.log import Log
from tidemark_agent.prepare import JOURNAL_NAME, Preparation
from tidemark_agent.system.disk import try_lock, write_durably
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.host import place_of, token_reader
from tidemark_agent.wire.spool import Spool


class Stop(threading.Event):
    """An event that nobody can clear any more after `end`: what ends one boot must not hide that all is to end."""

    def __init__(self) -> None:
        super().__init__()
        self.is_final = False

    def end(self) -> None:
        self.is_final = True
        self.set()

    def clear(self) -> None:
        super().clear()
        # The signal may come at any instant, here too.
        if self.is_final:
            self.set()


DONE, FAILED, REFUSED, UNREACHABLE = 0, 1, 3, 75
_LOCK_PATIENCE = 5.0
_DRAIN_PATIENCE = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 3600.0
# How often a kernel under test without a session is left: should it come back each time, an operator must look.
_MOST_STRAYS = 3
_RESTART_SECONDS = 600.0
_FAILED_INSIDE = "the agent failed in this kernel; its log says how"


def run_service(config_file: Path) -> int:
    """The exit status: 0 nothing is left to do or the machine goes down, 1 failed, 3 refused, 75 no server."""
    live = LiveLog()
    log = Log(live)
    try:
        config = read_config(config_file)
    except ConfigError as error:
        log.failure("configuration", reason=str(error))
        return REFUSED
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.end())
    return serve(LabService(config, live, log, stop, config_file=config_file))


def serve(service: "LabService") -> int:
    """Run it as the only one on this machine; a kernel under test is left whatever goes wrong in it."""
    state = service.config.state_dir
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = try_lock(state / "lab" / "service.lock", patience=_LOCK_PATIENCE)
    except OSError as error:
        # A full disk, or one that this kernel could only mount read-only.
        service.log.failure("disk-failed", reason=file_trouble(error))
        service.leave_after_failure()
        return FAILED
    if lock is None:
        service.log.info("already-running")
        return DONE
    try:
        status = _guarded(service)
        if status in {FAILED, REFUSED}:
            service.leave_after_failure()
        return status
    finally:
        os.close(lock)


def _guarded(service: "LabService") -> int:
    try:
        return service.run()
    except StoppedError:
        return DONE
    except UnreachableError as error:
        service.log.failure("server-given-up", reason=str(error))
        return UNREACHABLE
    except RefusedError as error:
        service.log.failure("server-refused", reason=str(error))
        return REFUSED
    except InfrastructureError as error:
        # Certificates that cannot be read, for one: the reason says more than a traceback.
        service.log.failure("service-failed", reason=str(error))
        return FAILED
    except Exception:  # the edge of the process
        service.log.exception("agent-crashed")
        return FAILED


@dataclass(frozen=True)
class LabService:
    """One process of the service."""

    config: AgentConfig
    live: LiveLog
    log: Log
    stop: Stop
    root: Path = Path("/")
    config_file: Path = DEFAULT_CONFIG

    def run(self) -> int:
        """Work until nothing is left to do: no session, no installed key, an empty spool.

        A host that asks for work itself asks then, and ends when it is told to.
        """
        asking = self._asking()
        try:
            return self._run(asking)
        finally:
            asking.end()

    def _run(self, asking: Asking) -> int:
        preparation = self._preparation()
        preparation.replay()
        spool = Spool(self.config.state_dir / "spool", owner=self.config.token_file, log=self.log)
        journal = Journal(self.config.state_dir / "lab")
        pause, is_first = _FIRST_PAUSE, True
        while not self.stop.is_set():
            progress = self._progress(journal)
            if is_first:
                self._say_hello(progress.key)
                is_first = False
            if progress.key:
                pause = self._session_or_pause(progress, journal, preparation, spool, pause)
            elif running_system(self.root).is_test_kernel:
                return self._leave_stray()
            elif self.config.pull:
                # What the service does not take now is tried again after each request, and holds up no work.
                asking.installs(once=not self._drained(spool))
            elif not self._drained(spool):
                self._wait_for_key(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                # Whoever waits for this machine hears that it is back and free before this process ends.
                self._say_hello("").join(PATIENCE_SECONDS)
                return DONE
        return DONE

    def _say_hello(self, key: str) -> threading.Thread:
        client, token_file = self._client(uuid.uuid4().hex), self.config.token_file
        return say_hello_aside(client, self.log, token_file=token_file, key=key, boots=True, root=self.root)

    def _session_or_pause(
        self, progress: Progress, journal: Journal, preparation: Preparation, spool: Spool, pause: float
    ) -> float:
        """Carry the session on, or wait for a token that is taken; how long to wait next time."""
        try:
            self._session(progress, journal, preparation, spool)
        except UnauthorizedError as error:
            self.log.failure("token-not-taken", reason=str(error), again_in=pause)
            self.stop.wait(pause)
            return min(pause * 2, _LONGEST_PAUSE)
        return _FIRST_PAUSE

    def _asking(self) -> Asking:
        client = self._client(uuid.uuid4().hex)
        return Asking(self.config, client, self.log, self.stop, self.config_file, self.root)

    def _wait_for_key(self, seconds: float) -> None:
        """Wait that long, but not while a new attempt waits, too."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not installed_key(self.config.state_dir):
            if self.stop.wait(_FIRST_PAUSE):
                return

    def _progress(self, journal: Journal) -> Progress:
        """The session under way, or one that begins now, or an empty one."""
        try:
            progress = progress_of(journal.entries())
        except JournalError as error:
            self.log.failure("journal-put-aside", reason=str(error), file=str(journal.put_aside()))
            progress = Progress()
        if progress.ended:
            journal.close(progress.key)
            progress = Progress()
        key = progress.key or installed_key(self.config.state_dir)
        running = running_system(self.root)
        if key and not progress.key and not running.is_test_kernel:
            journal.append(
                "begun",
                key=key,
                agent=uuid.uuid4().hex,
                build_id=running.build_id,
                boot_id=running.boot_id,
                command_line=running.command_line,
                brought_by=installed_by(self.config.state_dir),
            )
            progress = progress_of(journal.entries())
        if progress.key:
            forget_key(self.config.state_dir, progress.key)
        return progress

    def _session(self, progress: Progress, journal: Journal, preparation: Preparation, spool: Spool) -> None:
        log = self.log.bind(key=progress.key, trace=progress.assignment.trace if progress.assignment else "")
        client = self._client(progress.agent)
        uplink = Uplink(
            key=progress.key,
            client=client,
            spool=spool,
            away_seconds=self.config.boot.away_seconds,
            live=self.live,
            log=log,
            stop=self.stop,
            place=place_of(progress.brought_by, self.root),
        )
        machine = LabMachine(
            config=self.config,
            journal=journal,
            preparation=preparation,
            kernels=KernelStore(self.config.state_dir, self.config.boot, client, self.stop, self.root),
            log=log,
            stop=self.stop,
            tell=uplink.tell,
            root=self.root,
        )
        engine = Engine(journal, RebootedBoots(journal, machine, uplink, log), uplink, log)
        try:
            self._carry(engine, uplink)
        except OSError as error:
            self._without_disk(uplink, machine, progress_of(journal.entries()), file_trouble(error))
        finally:
            preparation.restore()
            uplink.release()

    def _carry(self, engine: Engine, uplink: Uplink) -> None:
        """Run the session to its end; a stop that the server asked for ends the session, one by signal the process."""
        while True:
            try:
                engine.run()
            except StoppedError:
                lease = uplink.lease
                if self.stop.is_final or lease is None or not lease.reason:
                    raise
                uplink.release()
                engine.stopped(lease.reason, superseded=lease.superseded)
            else:
                return

    def _without_disk(self, uplink: Uplink, machine: LabMachine, progress: Progress, reason: str) -> None:
        """Nothing can be written down, so nothing may be measured: home, and tell the server."""
        self.log.failure("disk-failed", reason=reason)
        if running_system(self.root).is_test_kernel:
            try:
                machine.driver(progress.job).disarm()
            except (InfrastructureError, OSError) as error:
                self.log.failure("not-disarmed", reason=str(error))
            self._restart()
        elif progress.assignment is not None:
            uplink.end("failed", reason)
        raise StoppedError(reason)

    def leave_after_failure(self) -> None:
        """Out of a test kernel, in which nothing goes on: what was under way is judged by the safe one."""
        try:
            if self._has_journal() and running_system(self.root).is_test_kernel:
                with contextlib.suppress(InfrastructureError, OSError):
                    self._blame_ourselves()
                self._restart()
        except (InfrastructureError, OSError) as error:
            self.log.failure("not-restarted", reason=str(error))

    def _blame_ourselves(self) -> None:
        """The boot that is under way ends as trouble of ours, or its kernel would be blamed for it in the end."""
        journal = Journal(self.config.state_dir / "lab")
        progress = progress_of(journal.entries())
        boot = progress.next_boot() if progress.assignment is not None and progress.armed is not None else None
        if boot is not None and progress.closing is None:
            body = failed_body("infrastructure", _FAILED_INSIDE, began=progress.armed_at)
            journal.append("outcome", position=boot.position, body=body)

    def _has_journal(self) -> bool:
        """Without one a test kernel is a stray, and those are left a few times only."""
        return (self.config.state_dir / "lab" / "session.jsonl").exists()

    def _leave_stray(self) -> int:
        """A kernel under test runs, and no session knows of it: go home, but not for ever."""
        file = self.config.state_dir / "lab" / "strays"
        times = len(file.read_bytes()) if file.exists() else 0
        self.log.failure("stray-test-kernel", times=times)
        if times >= _MOST_STRAYS:
            return FAILED
        write_durably(file, b"." * (times + 1))
        self._restart()
        return DONE

    def _restart(self) -> None:
        Reboots(self.config.boot, self.root).through_firmware()
        self.stop.wait(_RESTART_SECONDS)

    def _drained(self, spool: Spool) -> bool:
        """Send what waits; False while the server does not take all of it."""
        (self.config.state_dir / "lab" / "strays").unlink(missing_ok=True)
        if not any(True for _ in spool.items()):
            return True
        try:
            spool.upload(self._client(uuid.uuid4().hex), patience=_DRAIN_PATIENCE)
        except UnreachableError as error:
            self.log.warning("results-wait", reason=str(error))
        return not any(True for _ in spool.items())

    def _client(self, agent: str) -> Client:
        config = self.config
        return Client(
            server=config.server,
            token=token_reader(config.token_file, self.log),
            agent=agent,
            log=self.log,
            stop=self.stop,
            ca_file=config.ca_file,
        )

    def _preparation(self) -> Preparation:
        config = self.config
        journal = config.state_dir / JOURNAL_NAME
        return Preparation(config.prepare, journal=journal, log=self.log, stop=self.stop, root=self.root)
