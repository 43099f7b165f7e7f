"""What dispatchers dispatch into, for tests that hold for each of them: real programs, started by real adapters."""

import abc
import io
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_django.fixtures import Settings
from tidemark_agent.log import Log
from tidemark_agent.starter import Starter
from tidemark_agent.system.disk import try_lock

from server.core.models import ApiToken
from server.lab.attempts.asks import HostAsk, answer_ask
from server.lab.attempts.ends import end_attempt
from server.lab.attempts.life import claim_attempt, renew_lease
from server.lab.dispatch.jenkins.adapter import JenkinsDispatcher
from server.lab.dispatch.jenkins.client import JenkinsClient
from server.lab.dispatch.jenkins.http import Wire
from server.lab.dispatch.jenkins.jobs import wanted
from server.lab.dispatch.local import LocalDispatcher, stop_agents
from server.lab.dispatch.null import NullDispatcher
from server.lab.dispatch.pull import PullDispatcher
from server.lab.models import Asker, Attempt, AttemptState, Machine, Session
from server.lab.port import BY_ITSELF, Dispatcher, Origin, Sightings, Work, WorkKind
from server.lab.work import work_of
from tests.builders import build_machine, build_series, build_session
from tests.jenkins.server import JenkinsServer
from tests.jenkins.server.jobs import make

# Takes its lock as an agent does, says that it runs, and goes on until it is told to end.
STAND_IN = """#!{python}
import fcntl, os, pathlib, signal, sys, time
folder, key = pathlib.Path({folder!r}), sys.argv[2]
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
if "--state-dir" in options:
    lock = open(os.path.join(options["--state-dir"], key + ".lock"), "a+")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
(folder / ("script-" + key)).write_text(options.get("--script", ""))
if (folder / "stubborn").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with (folder / ("starts-" + key)).open("a") as file:
    file.write(str(os.getpid()) + "\\n")
deadline = time.monotonic() + 30
while not (folder / ("end-" + key)).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
"""


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} seconds in vain"
        time.sleep(0.02)


class World(abc.ABC):
    """One adapter and what it starts programs on. What is not abstract is as it is where there is no controller."""

    port: Dispatcher
    folder: Path
    hands_out = True
    # Whether a stop that the outside calls done has ended the program, however stubborn that is.
    kills = True

    @abc.abstractmethod
    def __init__(self, folder: Path, settings: Settings) -> None: ...

    def define(self) -> None:  # noqa: B027 (this host needs no telling)
        """The outside learns the machines and builders of the lab as they are now."""

    def step(self) -> None:  # noqa: B027 (most outsides go on by themselves)
        """The outside goes on by one step; called wherever a test waits for it."""

    def origin(self, work: Work) -> Origin:  # noqa: ARG002 (what no controller started brings nothing)
        """What the agent brings that the outside started for this work."""
        return BY_ITSELF

    @abc.abstractmethod
    def cut(self) -> None:
        """The outside does not take work any more."""

    @abc.abstractmethod
    def mend(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...


def write_stand_in(folder: Path) -> Path:
    path = folder / "stand-in"
    path.write_text(STAND_IN.format(python=sys.executable, folder=str(folder)))
    path.chmod(0o755)
    return path


def starts(world: World, key: str) -> int:
    """How often a program was started for this key."""
    world.step()
    file = world.folder / f"starts-{key}"
    return len(file.read_text().split()) if file.exists() else 0


def let_end(world: World, key: str) -> None:
    (world.folder / f"end-{key}").touch()


def new_work(machine: str = "vm-haswell", **fields: Any) -> tuple[Attempt, Work]:
    """An attempt at a session, committed and not handed over."""
    session: Session = build_session(build_series(), build_machine(machine, **fields), state="dispatched")
    attempt = Attempt.objects.create(
        key=f"session-{session.pk}-1",
        number=1,
        session=session,
        machine=session.machine,
        adapter="any",
        slots=1,
        state=AttemptState.SUBMITTING,
    )
    work = work_of(attempt)
    assert work.kind is WorkKind.SESSION
    return attempt, work


class LocalWorld(World):
    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.port: Dispatcher = LocalDispatcher()
        self.mend()

    def cut(self) -> None:
        self.settings.LOCAL_AGENT = str(self.folder / "nowhere")

    def mend(self) -> None:
        self.settings.LOCAL_AGENT = str(write_stand_in(self.folder))

    def close(self) -> None:
        end_all(self.folder)
        stop_agents()


class ApartWorld(World):
    """Agents that `tidemark-agent serve` starts, as in a container of their own."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self._agents = folder, settings.STATE_DIR / "agents"
        settings.LOCAL_AGENTS, settings.LOCAL_AGENT = "apart", "nowhere"
        self.port: Dispatcher = LocalDispatcher()
        self._program = (sys.executable, str(write_stand_in(folder)))
        self.mend()

    def cut(self) -> None:
        self._stop.set()
        self._thread.join()
        os.close(self._lock)

    def mend(self) -> None:
        lock = try_lock(self._agents / "serve.lock", patience=5)
        assert lock is not None
        self._lock, self._stop = lock, threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(self._stop,))
        self._thread.start()

    def _serve(self, stop: threading.Event) -> None:
        starter = Starter(self._agents, Log(io.StringIO()), self._program)
        while not stop.wait(0.02):
            starter.look()
        starter.end_all()

    def close(self) -> None:
        end_all(self.folder)
        if not self._stop.is_set():
            self.cut()


class PullWorld(World):
    """Hosts that ask: agents of all machines, which go on by a step wherever a test looks."""

    kills = False

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        settings.DISPATCHER, settings.LEASE_SECONDS = "pull", 1
        self.port: Dispatcher = PullDispatcher()
        self._program = str(write_stand_in(folder))
        self._working: dict[str, subprocess.Popen[bytes]] = {}
        self._is_cut = False
        look = self.port.look

        def step_and_look(works: Sequence[Work]) -> Sightings:
            self.step()
            return look(works)

        setattr(self.port, "look", step_and_look)  # noqa: B010 (this one object's)

    def define(self) -> None:
        Attempt.objects.filter(adapter="any").update(adapter="pull")
        self.step()

    def step(self) -> None:
        if self._is_cut:
            return
        for machine in Machine.objects.all():
            offer = answer_ask(token=_token_of(machine), ask=HostAsk(machine.name, "1", keys=tuple(self._working)))
            if offer.key:
                claim_attempt(Attempt.objects.get(key=offer.key), f"agent-{offer.key}", host=machine.name)
                self._working[offer.key] = subprocess.Popen([self._program, "run", offer.key])
        for key, program in list(self._working.items()):
            self._beat(key, program)

    def _beat(self, key: str, program: "subprocess.Popen[bytes]") -> None:
        attempt, agent = Attempt.objects.get(key=key), f"agent-{key}"
        if program.poll() is not None:
            end_attempt(attempt=attempt, agent=agent, outcome="done", reason="")
            del self._working[key]
        elif not renew_lease(attempt=attempt, agent=agent, progress=""):
            program.terminate()

    def cut(self) -> None:
        self._is_cut = True
        Asker.objects.all().delete()

    def mend(self) -> None:
        self._is_cut = False
        self.step()

    def close(self) -> None:
        end_all(self.folder)
        for program in self._working.values():
            program.wait()


def _token_of(machine: Machine) -> ApiToken:
    return ApiToken(scope=ApiToken.Scope.MACHINE, subject=machine.name)


class NullWorld(World):
    """There is no outside."""

    hands_out = False

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        settings.DISPATCHER = "null"
        self.port: Dispatcher = NullDispatcher()

    def cut(self) -> None: ...

    def mend(self) -> None: ...

    def close(self) -> None: ...


class JenkinsWorld(World):
    """A controller that knows all machines and builders of the lab as they are when `define` is called."""

    # It ends no program: what it says then proves nothing about that, whose lease does.
    kills = False

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder = folder
        settings.JENKINS_AGENT = str(write_stand_in(folder))
        settings.DISPATCHER = "jenkins"
        self.server = JenkinsServer()
        settings.JENKINS_URL = self.server.url
        self.token_file = folder / "token"
        self.token_file.write_text(self.server.token)
        self.client = self.new_client()
        self.port: Dispatcher = JenkinsDispatcher(self.client)

    def new_client(self, seconds: float = 2.0) -> JenkinsClient:
        """A connection without a rate limit, so that tests are quick."""
        return JenkinsClient(Wire(self.server.url, self.server.user, self.token_file, seconds=seconds), "tidemark-")

    def define(self) -> None:
        """What jenkins_apply does."""
        definitions = wanted()
        for node in definitions.nodes.values():
            if node.name not in self.server.controller.nodes:
                self.server.add_node(node.name, node.labels, executors=node.executors)
        for job in definitions.jobs.values():
            if job.name not in self.server.controller.jobs:
                self.server.controller.jobs[job.name] = make(self.server.controller, job.name, job.xml)

    def origin(self, work: Work) -> Origin:
        job = f"tidemark-session-{work.subject}"
        return Origin(job, 7, work.host, "a-boot", wanted().jobs[job].script)

    def cut(self) -> None:
        self.server.cut_network("refuse")

    def mend(self) -> None:
        self.server.restore_network()

    def close(self) -> None:
        end_all(self.folder)
        self.client.close()
        self.server.close()


# A new adapter joins here, and the contract holds for it as for the others.
WORLDS: dict[str, type[World]] = {
    "local": LocalWorld, "apart": ApartWorld, "jenkins": JenkinsWorld, "pull": PullWorld, "null": NullWorld,
}  # fmt: skip


def end_all(folder: Path) -> None:
    """Let every stand-in end, those that ignore SIGTERM included."""
    for file in folder.glob("starts-*"):
        (folder / file.name.replace("starts-", "end-")).touch()
    for pid in (int(line) for file in folder.glob("starts-*") for line in file.read_text().split()):
        until(lambda pid=pid: not _lives(pid, folder), seconds=5)  # type: ignore[misc]  # (a default binds the pid)


def _lives(pid: int, folder: Path) -> bool:
    try:
        return str(folder / "stand-in").encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
