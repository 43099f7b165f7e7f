"""The lab of the matrix: one service, one controller, a dispatching process, and a host for each cell."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection

from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.dispatch.jenkins import jobs
from server.lab.dispatch.jenkins.jobs import JobDefinition, job_name, wanted
from server.lab.models import Builder
from server.lab.models import Machine as MachineRow
from server.lab.port import WorkKind
from tests.builders import build_builder, build_machine, build_toolchain
from tests.jenkins.matrix.machines import Machine
from tests.jenkins.matrix.quick import LEASE_SECONDS, TIMEOUT_SECONDS
from tests.jenkins.matrix.wire import CuttableWire
from tests.jenkins.server import JenkinsServer
from tests.jenkins.server.jobs import make

ROOT = Path(__file__).resolve().parents[3]
CONTROL = "lab-control"
_POLL_SECONDS = 0.05


class Lab:
    """Context manager. `folder` is shared with agents: tokens, keys, what holds them, and power switches.

    `site` is what settings are changed by: Django's own, or pytest's fixture, which puts them back.
    """

    def __init__(self, folder: Path, service: str, site: Any) -> None:
        self.folder, self.site = folder, site
        for name in ("tokens", "keys", "hold", "power"):
            (folder / name).mkdir()
        parts = urlsplit(service)
        assert parts.hostname
        assert parts.port
        self.wire = CuttableWire((parts.hostname, parts.port))
        self.service = f"http://127.0.0.1:{self.wire.port}"
        self.jenkins = JenkinsServer()
        self.machines: dict[str, Machine] = {}
        self.dispatchers: list[subprocess.Popen[bytes]] = []
        # Of its own: other tests use the same broker.
        self.redis_prefix = f"tidemark-matrix-{os.getpid()}:"
        self._over = threading.Event()
        self._defined: set[str] = set()

    def __enter__(self) -> Self:
        self.wire.__enter__()
        (self.folder / "jenkins-token").write_text(self.jenkins.token)
        self.site.DISPATCHER = "jenkins"
        self.site.JENKINS_URL = self.jenkins.url
        self.site.JENKINS_TOKEN_FILE = str(self.folder / "jenkins-token")
        self.site.JENKINS_AGENT = str(self._agent())
        self.site.JENKINS_TIMEOUT_SECONDS = TIMEOUT_SECONDS
        self.site.LAB_CONTROL = CONTROL
        self.site.LEASE_SECONDS = LEASE_SECONDS
        self.jenkins.add_node(CONTROL, executors=20)
        self._token(CONTROL, ApiToken.Scope.CONTROL)
        threading.Thread(target=self._switch, daemon=True, name="power switches").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for process in self.dispatchers:
            process.kill()
            process.wait()
        for machine in self.machines.values():
            machine.die()
        self.jenkins.close()
        self.wire.__exit__(kind, error, trace)

    # --- hosts ----------------------------------------------------------------------------------

    def add_machine(self, name: str) -> MachineRow:
        row = build_machine(name, boot_driver="kexec")
        self._token(name, ApiToken.Scope.MACHINE)
        self.jenkins.add_node(name)
        self.machines[name] = Machine(self.folder, self.service, name)
        self.machines[name].start()
        return row

    def add_builder(self, name: str) -> Builder:
        self._token(name, ApiToken.Scope.BUILDER)
        self.jenkins.add_node(name)
        # No other builder has its toolchain: a cell's build keeps to its own host.
        return build_builder(name, toolchains=[build_toolchain(f"gcc-{name}").name])

    def define_jobs(self) -> None:
        """The jobs that our hosts need and that are not there, from the product's own templates, as jenkins_apply."""
        for job in wanted().jobs.values():
            if job.name not in self._defined:
                self._define(job)

    def _define(self, job: JobDefinition) -> None:
        self._defined.add(job.name)
        with self.jenkins.controller.lock:
            self.jenkins.controller.jobs[job.name] = make(self.jenkins.controller, job.name, job.xml)
        jobs.forget(job.name)

    def delete_jobs(self, hosts: Sequence[str]) -> None:
        for name in {
            job_name(kind, host) for kind in (WorkKind.SESSION, WorkKind.BUILD) for host in hosts
        } & self._defined:
            self.jenkins.delete_job(name)
            self._defined.remove(name)

    def retire_hosts(self) -> None:
        """What earlier cells used is out of the lab."""
        for name, machine in self.machines.items():
            machine.die()
            with contextlib.suppress(KeyError):
                self.jenkins.remove_node(name)
        self.machines.clear()
        MachineRow.objects.update(enabled=False)
        Builder.objects.update(enabled=False)

    def hold(self, host: str, point: str) -> None:
        target = self.folder / "hold" / host
        target.with_suffix(".new").write_text(point)
        target.with_suffix(".new").rename(target)

    def release(self, host: str) -> None:
        (self.folder / "hold" / host).unlink(missing_ok=True)

    def _token(self, host: str, scope: ApiToken.Scope) -> None:
        (self.folder / "tokens" / host).write_text(issue_token(name=host, scope=scope, subject=host))

    def _agent(self) -> Path:
        """What the jobs' scripts call as the agent."""
        path = self.folder / "tidemark-agent"
        paths = f"{ROOT}:{ROOT / 'agents'}"
        module = "tests.jenkins.matrix.program"
        path.write_text(
            f"#!/bin/sh\nexport PYTHONPATH={paths}\n"
            f'exec {sys.executable} -m {module} {self.folder} {self.service} "$@"\n'
        )
        path.chmod(0o755)
        return path

    def _switch(self) -> None:
        """The control host's switches: a machine that is switched off and on is back, with its Jenkins agent."""
        while not self._over.wait(_POLL_SECONDS):
            for file in (self.folder / "power").iterdir():
                machine = self.machines.get(file.name)
                if machine is not None:
                    machine.start()
                    self.jenkins.thaw(file.name)
                    self.jenkins.connect(file.name)
                file.unlink()

    # --- the dispatching process ------------------------------------------------------------------

    def start_dispatcher(self, mode: str = "alone") -> subprocess.Popen[bytes]:
        database = connection.settings_dict
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'agents'}",
            "TIDEMARK_DATABASE_URL": _database_url(database),
            "TIDEMARK_STATE_DIR": str(settings.STATE_DIR),
            "TIDEMARK_REDIS_PREFIX": self.redis_prefix,
            "TIDEMARK_DISPATCHER": "jenkins",
            "TIDEMARK_JENKINS_URL": self.jenkins.url,
            "TIDEMARK_JENKINS_TOKEN_FILE": settings.JENKINS_TOKEN_FILE,
            "TIDEMARK_JENKINS_AGENT": settings.JENKINS_AGENT,
            "TIDEMARK_JENKINS_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS),
            "TIDEMARK_LAB_CONTROL": CONTROL,
            "TIDEMARK_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        ready, log = self.folder / "ready", self.folder / "dispatcher.log"
        ready.unlink(missing_ok=True)
        with log.open("a") as file:
            command = [sys.executable, "-m", "tests.jenkins.matrix.dispatching", str(ready), mode]
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
        self.dispatchers.append(process)
        while not ready.exists():
            if process.poll() is not None:
                raise RuntimeError(log.read_text()[-3000:])
            time.sleep(_POLL_SECONDS)
        return process

    def kill_dispatcher(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.dispatchers.remove(process)


def wait_until(condition: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what()}: not within {seconds} s")
        time.sleep(2 * _POLL_SECONDS)


def _database_url(database: dict[str, Any]) -> str:
    host = database["HOST"] or database["OPTIONS"].get("host", "")
    port, password = database["PORT"], database["PASSWORD"]
    user = f"{database['USER']}:{password}" if password else f"{database['USER']}"
    name = database["NAME"]
    if str(host).startswith("/"):
        return f"postgres://{user}@/{name}?host={host}"
    return f"postgres://{user}@{host}:{port or 5432}/{name}"
