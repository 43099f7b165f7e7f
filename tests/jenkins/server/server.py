"""The server as tests use it: a running controller, its users, its agents, and its faults."""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from xml.sax.saxutils import escape, unescape

from tests.jenkins.server.auth import Users
from tests.jenkins.server.builds import Build
from tests.jenkins.server.controller import Controller
from tests.jenkins.server.definition import job_xml
from tests.jenkins.server.faults import Rule, Wire, Wrong
from tests.jenkins.server.http import Listener, Logged, Site
from tests.jenkins.server.jobs import Job, make
from tests.jenkins.server.nodes import Node
from tests.jenkins.server.timing import RECORDED, Timing

# A test needs no recorded seconds: 50 times as fast, but for the quiet period, which `delay=0sec` skips anyway.
QUICK = RECORDED.faster(50)
_WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.01


class JenkinsServer:
    """Context manager. `url`, `user` and `token` are those of the service's own least-privileged user.

    `port` 0 takes a free one. With `environment`, every agent's programs get these variables.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        timing: Timing = QUICK,
        user: str = "dispatcher",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="jenkins-"))
        self.controller = Controller(self._folder, timing)
        self.users = Users()
        self.wire = Wire()
        self.requests: list[Logged] = []
        self.user = user
        self._environment = dict(environment or {})
        self.site = Site(self.controller, self.users, self.wire, self.requests.append)
        self._listener: Listener | None = None
        self._port = port
        self._listen()
        self.controller.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything, programs that live on included."""
        self.restore_network()
        self.wire.lifted.set()
        self._deafen()
        self.controller.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        return self.controller.url

    @property
    def token(self) -> str:
        return self.token_of(self.user)

    def token_of(self, user: str) -> str:
        return self.users.by_name[user].token

    # --- what is there ------------------------------------------------------------------------

    def add_node(self, name: str, labels: str = "", *, executors: int = 1, connected: bool = True) -> Node:
        with self.controller.lock:
            node = Node(self.controller, name, labels.split(), executors)
            node.remote_fs = str(self._folder / "agents" / name)
            node.connected = connected
            node.environment = dict(self._environment)
            self.controller.nodes[name] = node
            return node

    def add_job(
        self,
        name: str,
        script: str = "#!/bin/sh\ntrue\n",
        *,
        label: str = "",
        parameters: tuple[str, ...] = ("RUN_ID",),
    ) -> Job:
        """A job as an admin would make it, pinned to the nodes of a label expression (a node's name is one)."""
        with self.controller.lock:
            job = make(self.controller, name, job_xml(script, label=label, parameters=parameters))
            self.controller.jobs[name] = job
            return job

    def connect(self, node: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the node's agent; its programs get `environment` besides the usual."""
        with self.controller.lock:
            found = self.controller.nodes[node]
            found.environment |= {**self._environment, **(environment or {})}
            found.connected, found.broken, found.back_at = True, None, None
            found.remote_fs = found.remote_fs or str(self._folder / "agents" / node)

    def node(self, name: str) -> Node:
        return self.controller.nodes[name]

    def job(self, name: str) -> Job:
        return self.controller.jobs[name]

    def builds_of(self, key: str) -> list[Build]:
        """All builds with this RUN_ID, oldest first."""
        with self.controller.lock:
            builds = [build for job in self.controller.jobs.values() for build in reversed(job.builds)]
            return [build for build in builds if build.parameters.get("RUN_ID") == key]

    def waiting_keys(self) -> list[str]:
        with self.controller.lock:
            return [item.parameters.get("RUN_ID", "") for item in self.controller.queue.waiting.values()]

    def wait_for(self, condition: Callable[[], object], seconds: float = _WAIT_SECONDS) -> None:
        """Raises TimeoutError."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds} s")
            time.sleep(_POLL_SECONDS)

    # --- the controller and its agents die ------------------------------------------------------

    def restart(self, *, kill: bool, down_seconds: float | None = None) -> None:
        """SIGTERM (the queue is kept) or SIGKILL (queue lost, queue ids given out again); returns when it is up."""
        seconds = self.controller.timing.restart if down_seconds is None else down_seconds
        self.go_down(kill=kill)
        time.sleep(seconds / 2)
        for starting in ("503", "401", "503"):
            self.begin_to_start(starting)
            time.sleep(seconds / 6)
        self.come_up()

    def begin_to_start(self, answering: Literal["401", "503"]) -> None:
        """It listens, and answers nothing else to anybody until it is up."""
        self.wire.starting = answering
        if self._listener is None:
            self._listen()

    def go_down(self, *, kill: bool) -> None:
        self._deafen()
        with self.controller.lock:
            self.controller.end_all(kill=kill)

    def come_up(self) -> None:
        with self.controller.lock:
            self.controller.begin_again()
        self.wire.starting = ""
        if self._listener is None:
            self._listen()

    def save_queue(self) -> None:
        """What Jenkins does at most once a minute: a SIGKILL gives out ids again from here."""
        with self.controller.lock:
            self.controller.save()

    def kill_agent(self, node: str, *, back_after: float | None = None) -> None:
        """The agent process dies: builds FAILURE, what they started lives on. It stays away unless `back_after`."""
        with self.controller.lock:
            timing = self.controller.timing
            self.controller.lose_agent(self.node(node), after=timing.agent_lost, back_after=back_after)

    def freeze_agent(self, node: str, *, machine: bool = False) -> None:
        """The agent process stands still, with `machine` everything that it started as well."""
        with self.controller.lock:
            found = self.node(node)
            found.frozen_at = time.monotonic()
            for build in found.running():
                if build.program is not None:
                    build.program.freeze(machine=machine)

    def thaw(self, node: str) -> None:
        with self.controller.lock:
            self.controller.thaw(self.node(node))

    def remove_node(self, node: str) -> None:
        with self.controller.lock:
            self.controller.lose_agent(self.node(node), after=0, back_after=None)
            del self.controller.nodes[node]

    # --- the wire ---------------------------------------------------------------------------------

    def cut_network(self, how: str = "refuse") -> None:
        """Until `restore_network`: `refuse` connections, or accept them and `hang`, or give `half` answers."""
        if how == "refuse":
            self._deafen()
        else:
            self.answer_with("hang" if how == "hang" else "half")

    def restore_network(self) -> None:
        self.wire.rules.clear()
        self.wire.delay = 0.0
        lifted, self.wire.lifted = self.wire.lifted, type(self.wire.lifted)()
        lifted.set()
        if self._listener is None:
            self._listen()

    def slow(self, seconds: float) -> None:
        """Each answer takes so long more."""
        self.wire.delay = seconds

    def answer_with(self, wrong: Wrong, *, path: str = "", times: int | None = None) -> None:
        """Wrong answers (see faults.Wrong) to requests whose "METHOD /path" the pattern `path` finds."""
        self.wire.rules.append(Rule(wrong, re.compile(path), times))

    def speak(self, translate: Callable[[str], str] | None) -> None:
        """Why items wait is told in other words."""
        self.wire.translate = translate

    # --- what people do ---------------------------------------------------------------------------

    def expire_token(self, user: str = "") -> None:
        self.users.by_name[user or self.user].expired = True

    def renew_token(self, user: str = "") -> str:
        """A new token, which is returned; the old one is gone."""
        found = self.users.by_name[user or self.user]
        found.token, found.expired = f"{found.token[::-1]}0", False
        return found.token

    def skew_clock(self, seconds: float) -> None:
        self.controller.skew = seconds

    def edit_job(self, name: str, parameters: tuple[str, ...] = ()) -> None:
        """Somebody changes the job: it has these parameters from now on; what is sent for others vanishes."""
        with self.controller.lock:
            job = self.job(name)
            script = job.scripts[0] if job.scripts else ""
            job.configure(job_xml(script, label=job.label, parameters=parameters or ("OTHER",)))

    def edit_script(self, name: str, change: Callable[[str], str]) -> None:
        """Somebody changes what the job runs, and nothing that is seen without the right to configure it."""
        with self.controller.lock:
            job = self.job(name)
            (old,) = (escape(script) for script in job.scripts)
            changed = job.xml.replace(old, escape(change(unescape(old))))
            assert changed != job.xml
            job.configure(changed)

    def disable_job(self, name: str, *, disabled: bool = True) -> None:
        with self.controller.lock:
            job = self.job(name)
            told = [f"<disabled>{str(each).lower()}</disabled>" for each in (not disabled, disabled)]
            job.configure(job.xml.replace(told[0], told[1]))

    def delete_job(self, name: str) -> None:
        """Somebody deletes the job while it runs."""
        with self.controller.lock:
            self.controller.delete_job(self.job(name), "admin")

    def stop_build(self, key: str) -> None:
        """Somebody presses the stop button of the key's last build."""
        with self.controller.lock:
            self.controller.stop(self.builds_of(key)[-1], "admin")

    def start_twice(self, key: str) -> None:
        """One more build of the same key, as two dispatchers at once would cause it past the folding."""
        with self.controller.lock:
            for item in self.controller.queue.waiting.values():
                if item.parameters.get("RUN_ID") == key:
                    self.controller.duplicate(item)
                    return
            self.controller.duplicate(self.builds_of(key)[-1])

    def _listen(self) -> None:
        self._listener = Listener(self._port, self.site)
        self._port = self._listener.server_address[1]
        self.controller.url = f"http://127.0.0.1:{self._port}"

    def _deafen(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
