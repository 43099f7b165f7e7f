"""The controller's state and its clockwork: what becomes of items, builds and nodes as time goes on."""

import secrets
import shutil
import signal
import threading
import time
from pathlib import Path

from tests.jenkins.server.builds import Build
from tests.jenkins.server.jobs import Job
from tests.jenkins.server.killing import marked, send
from tests.jenkins.server.nodes import Node
from tests.jenkins.server.process import COOKIE, Program, command
from tests.jenkins.server.queue import Item, Queue, place_for
from tests.jenkins.server.timing import Timing

_TICK_SECONDS = 0.02
VERSION = "2.532"


class Controller:
    """All state, below one lock. Methods are called with the lock held, unless they say otherwise."""

    def __init__(self, folder: Path, timing: Timing) -> None:
        self.lock = threading.RLock()
        self.folder = folder
        self.timing = timing
        self.url = ""
        self.session = secrets.token_hex(4)
        self.skew = 0.0
        self.jobs: dict[str, Job] = {}
        self.nodes: dict[str, Node] = {}
        self.queue = Queue(self)
        self.quieting = False
        self.up = True
        self.programs: list[Program] = []
        self._running: list[Build] = []
        self._saved_id, self._saved_at = 1, time.monotonic()
        self._over = threading.Event()
        self._clockwork = threading.Thread(target=self._run, daemon=True, name="jenkins clockwork")

    def start(self) -> None:
        self._clockwork.start()

    def close(self) -> None:
        """Called without the lock."""
        self._over.set()
        self._clockwork.join()
        with self.lock:
            programs = list(self.programs)
        for program in programs:
            program.detach()
        # One search for all, those that hide from their build's end among them.
        send(marked({COOKIE: self.folder.name}), signal.SIGKILL)
        for program in programs:
            program.reap()

    def now(self) -> int:
        """Jenkins' clock in milliseconds."""
        return int((time.time() + self.skew) * 1000)

    def running_on(self, node: Node) -> list[Build]:
        return [build for build in self._running if build.node is node]

    def running(self) -> list[Build]:
        return list(self._running)

    # --- the clockwork ------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            with self.lock:
                if self.up:
                    self.tick()

    def tick(self) -> None:
        moment = time.monotonic()
        for node in list(self.nodes.values()):
            self._tick_node(node, moment)
        for build in self.running():
            if build.stop_at is not None and build.stop_at <= moment:
                self._end(build, "ABORTED")
            elif build.fails_at is not None and build.fails_at <= moment:
                self._end(build, "FAILURE", lost=True)
        for item in self.queue.due():
            node_for_it = None if self.quieting else place_for(item)
            if node_for_it is not None:
                self.queue.leave(item, self._begin(item, node_for_it))
        self.queue.forget()
        if moment - self._saved_at >= self.timing.queue_saved:
            self.save()

    def save(self) -> None:
        """Write the next queue id to disk."""
        self._saved_id, self._saved_at = self.queue.next_id, time.monotonic()

    def _tick_node(self, node: Node, moment: float) -> None:
        if node.back_at is not None and node.back_at <= moment and node.frozen_at is None:
            node.connected, node.back_at, node.broken = True, None, None
        if node.frozen_at is None:
            return
        if node.connected and moment - node.frozen_at >= self.timing.frozen_node:
            node.connected, node.broken = False, self.now()
        if moment - node.frozen_at >= self.timing.frozen_build:
            for build in self.running_on(node):
                build.fails_at = build.fails_at or moment

    # --- builds -------------------------------------------------------------------------------

    def _begin(self, item: Item, node: Node) -> Build:
        job = item.job
        folder = self.folder / "jobs" / job.name / "builds" / str(job.next_number)
        folder.mkdir(parents=True)
        build = Build(job, job.next_number, item.id, item.parameters, item.users, node, self.now(), folder)
        job.next_number += 1
        job.builds.insert(0, build)
        self._running.append(build)
        workspace = node.workspace_of(job.name)
        workspace.mkdir(parents=True, exist_ok=True)
        scripts = [self._script(text) for text in job.scripts]
        if scripts:
            build.begin(workspace, scripts[0], " ".join(command(scripts[0])[:-1]))
        build.program = Program(
            scripts,
            self._environment(build, workspace),
            workspace,
            output=lambda data: self._output(build, data),
            ended=lambda status: self._ended(build, status),
            patience=self.timing.soft_kill,
        )
        self.programs.append(build.program)
        if node.frozen_at is None:
            build.program.start()
        return build

    def _script(self, text: str) -> Path:
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        path = folder / f"jenkins{secrets.randbelow(10**19):019}.sh"
        path.write_text(text, encoding="utf-8")
        return path

    def _environment(self, build: Build, workspace: Path) -> dict[str, str]:
        job, node = build.job, build.node
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            **node.environment,
            "JENKINS_URL": f"{self.url}/",
            COOKIE: self.folder.name,
            "BUILD_URL": build.url,
            "JOB_URL": job.url,
            "JOB_NAME": job.name,
            "BUILD_NUMBER": str(build.number),
            "BUILD_ID": str(build.number),
            "BUILD_TAG": f"jenkins-{job.name}-{build.number}",
            "NODE_NAME": node.name,
            "NODE_LABELS": " ".join(node.labels),
            "EXECUTOR_NUMBER": "0",
            "WORKSPACE": str(workspace),
            **build.parameters,
        }

    def _output(self, build: Build, data: bytes) -> None:
        with self.lock:
            if build.building:
                build.console.write(data)

    def _ended(self, build: Build, status: int) -> None:
        """A program's end, told by its own thread."""
        with self.lock:
            if build in self._running and build.fails_at is None:
                result = "SUCCESS" if status == 0 else "FAILURE"
                self._end(build, "ABORTED" if build.stopped_by else result)

    def _end(self, build: Build, result: str, *, lost: bool = False) -> None:
        self._running.remove(build)
        if not lost:
            self._archive(build)
        if build.program is not None:
            build.program.detach()
        build.end(result, self.now(), lost=lost)

    def _archive(self, build: Build) -> None:
        workspace = build.node.workspace_of(build.job.name)
        for pattern in build.job.artifacts:
            # "out/**" means all files below; pathlib's ** means folders only.
            for path in workspace.glob(f"{pattern}/*" if pattern.endswith("**") else pattern):
                if path.is_file():
                    target = build.folder / path.relative_to(workspace)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, target)

    def stop(self, build: Build, user: str) -> None:
        """Nothing happens where the build is over or its agent does not answer."""
        if build.building and build.node.frozen_at is None and build.fails_at is None and build.stop_at is None:
            build.stopped_by = user
            build.stop_at = time.monotonic() + self.timing.stop
            if build.program is not None:
                build.program.terminate()

    def delete_job(self, job: Job, user: str) -> None:
        """Its builds are stopped, and nothing is left of them, nor on the disk."""
        for build in [each for each in self.running() if each.job is job]:
            self.stop(build, user)
            self._end(build, "ABORTED")
        for item in self.queue.of_job(job):
            del self.queue.waiting[item.id]
        del self.jobs[job.name]
        shutil.rmtree(self.folder / "jobs" / job.name, ignore_errors=True)

    # --- nodes and the controller's own end ---------------------------------------------------

    def lose_agent(self, node: Node, *, after: float, back_after: float | None) -> None:
        """The channel breaks: builds fail `after` seconds, what they started lives on."""
        moment = time.monotonic()
        node.connected, node.broken = False, self.now()
        node.back_at = None if back_after is None else moment + back_after
        for build in self.running_on(node):
            build.fails_at = moment + after
            if build.program is not None:
                build.program.detach()

    def thaw(self, node: Node) -> None:
        """The agent goes on: with its builds if its connection is still held, else it connects anew."""
        node.frozen_at = None
        if not node.connected:
            node.back_at = time.monotonic() + self.timing.agent_back
        for build in self.running_on(node):
            if build.program is not None and build.program.processes:
                build.program.thaw()
            elif build.program is not None:
                build.program.start()

    def end_all(self, *, kill: bool) -> None:
        """The controller ends: running builds leave no record, though their numbers are used up.

        Their agents live, and end what the builds had started.
        """
        for build in self.running():
            if build.program is not None:
                if build.node.frozen_at is None:
                    build.program.terminate()
                build.program.detach()
            build.job.builds.remove(build)
        self._running.clear()
        self.queue.left.clear()
        if kill:
            self.queue.waiting.clear()
            self.queue.next_id = self._saved_id
        for node in self.nodes.values():
            if node.connected:
                node.connected, node.back_at = False, float("inf")
        self.up, self.quieting = False, False

    def begin_again(self) -> None:
        self.session = secrets.token_hex(4)
        back = time.monotonic() + self.timing.agents_back_after_restart
        for node in self.nodes.values():
            if node.back_at == float("inf"):
                node.back_at = back
        self.up = True

    def duplicate(self, item_or_build: Item | Build) -> Item:
        """The same parameters once more in the queue, past the folding: a trigger that two clients sent."""
        source = item_or_build
        item = Item(
            self,
            self.queue.next_id,
            source.job,
            dict(source.parameters),
            list(source.users),
            self.now(),
            time.monotonic(),
            expires=self.now(),
        )
        self.queue.next_id += 1
        self.queue.waiting[item.id] = item
        return item
