"""Boots in an emulator: each is made in one step, beside the system that the agent runs on and stays in."""

import hashlib
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark, compiled_program, find_benchmark, static_program
from tidemark_agent.boot.console import Note
from tidemark_agent.boot.evidence import RunningSystem, running_system
from tidemark_agent.boot.qemu import COUNTED_KHZ, INIT_SOURCE, QemuDriver, build_initramfs, host_tsc_khz, split_cases
from tidemark_agent.config import BootConfig
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab.engine import Decision, Engine
from tidemark_agent.lab.journal import BriefJournal, Progress, progress_of
from tidemark_agent.lab.machine import KernelStore, keep_newest
from tidemark_agent.lab.result import boot_body
from tidemark_agent.lab.uplink import Uplink
from tidemark_agent.log import Log
from tidemark_agent.system.process import heed_stop
from tidemark_agent.wire.assignment import Assignment, PlannedCase, SessionJob
from tidemark_agent.wire.client import Client, Lease
from tidemark_agent.wire.spool import Spool

_LAST_PATIENCE = 600.0
_KEPT_INITRAMFS = 4
_FORGOTTEN_SECONDS = 24 * 3600


@dataclass(frozen=True)
class EmulatedBoots:
    """Those of one claimed attempt; before one blames a kernel the `lease` is asked."""

    key: str
    job: SessionJob
    state: Path
    client: Client
    lease: Lease
    log: Log
    stop: threading.Event

    def run(self, answer: Mapping[str, Any], spool: Spool, *, patience: float) -> str:
        """Make the boots; returns why the session failed, or "" when all was done or no more is wanted.

        `answer` is the claim's; `patience` is how long one result waits for the server before the next boot.
        """
        journal = BriefJournal()
        journal.append("claimed", assignment=answer)
        uplink = HostUplink(
            key=self.key, client=self.client, spool=spool, log=self.log, stop=self.stop, patience=patience
        )
        _forget_old(self._work.parent)
        self._work.mkdir(exist_ok=True)
        try:
            self.check(self.job)
            Engine(journal, self, uplink, self.log).run()
        finally:
            shutil.rmtree(self._work, ignore_errors=True)
        outcome, reason = progress_of(journal.entries()).closing or ("done", "")
        return reason if outcome == "failed" else ""

    def running(self) -> RunningSystem:
        """The host's own system: the only one that this agent is ever in."""
        return replace(running_system(), nonce="")

    def check(self, job: SessionJob) -> None:
        """Prepare all that the boots need: what is missing here is found before the first of them."""
        if job.boot_driver != "qemu":
            raise InfrastructureError(f"the boot driver {job.boot_driver} needs `service` on the machine itself")
        _ = self._driver

    def take(self, decision: Decision, progress: Progress, running: RunningSystem) -> dict[str, Any]:  # noqa: ARG002
        """From the kernel's start to its end."""
        assert decision.boot is not None
        arm, position = decision.boot.arm, decision.boot.position
        self.lease.progress = f"boot {position} ({arm})"
        cases, skipped = self._cases
        outcome = self._driver.boot(progress.job.kernels[arm], cases)
        if outcome.outcome == "infrastructure":
            # What failed may have been ended together with the agent.
            heed_stop(self.stop)
        elif outcome.outcome != "measured":
            # Nothing is said against a kernel or a machine for work that somebody has ended.
            self.lease.require()
        return boot_body(replace(outcome, notes=(*outcome.notes, *skipped)))

    def leave(self, progress: Progress) -> None:
        """It never left."""

    def tidy(self, progress: Progress) -> None:
        """An emulator leaves nothing behind but its files, which go when all is over."""

    @property
    def _work(self) -> Path:
        return self._cache("boots") / self.key

    @cached_property
    def _cases(self) -> tuple[tuple[PlannedCase, ...], tuple[Note, ...]]:
        return split_cases(self.job.cases, self._benchmarks)

    @cached_property
    def _driver(self) -> QemuDriver:
        job = self.job
        return QemuDriver(
            arch=job.arch,
            options=job.options,
            clock=job.clock,
            sandbox=job.sandbox,
            timeout_seconds=job.boot_timeout_seconds,
            image=KernelStore(self.state, BootConfig(), self.client, self.stop).fetch_images(job.kernels.values()),
            initramfs=self._initramfs(),
            tsc_khz=self._tsc_khz(),
            work=self._work,
            log=self.log,
            stop=self.stop,
        )

    @cached_property
    def _benchmarks(self) -> Mapping[str, Benchmark]:
        """The benchmarks that the cases name; another version is another program, so it is no substitute."""
        found: dict[str, Benchmark] = {}
        for case in self.job.cases:
            benchmark = found.setdefault(case.benchmark, find_benchmark(case.benchmark))
            if benchmark.version != case.version:
                raise InfrastructureError(
                    f"benchmark {case.benchmark} is wanted in version {case.version[:12]}, "
                    f"this agent has {benchmark.version[:12]}"
                )
        return found

    def _tsc_khz(self) -> int | None:
        """One value for all boots of this attempt, so that no difference between them comes from here.

        Counted instructions have a fixed one. Else it is measured anew: another attempt of the session may differ by
        the error of the measurement. None lets the kernel find it out, or says that there is no such counter.
        """
        if self.job.arch != "x86_64":
            return None
        if self.job.clock == "instructions":
            return COUNTED_KHZ
        return host_tsc_khz(self._cache("benchmarks"), self.stop)

    def _initramfs(self) -> Path:
        cases, _ = self._cases
        common: dict[str, Any] = {"arch": self.job.arch, "cache": self._cache("benchmarks"), "stop": self.stop}
        wanted = {case.benchmark for case in cases}
        programs = {n: compiled_program(b, **common) for n, b in self._benchmarks.items() if n in wanted}
        archive = build_initramfs(cases, programs, init=static_program(INIT_SOURCE, **common))
        path = self._cache("initramfs") / hashlib.sha256(archive).hexdigest()
        if not path.is_file():
            partial = path.with_name(f"{path.name}.{self.key}")
            partial.write_bytes(archive)
            partial.replace(path)
            keep_newest(path.parent, _KEPT_INITRAMFS)
        return path

    def _cache(self, name: str) -> Path:
        path = self.state / name
        path.mkdir(parents=True, exist_ok=True)
        return path


class HostUplink(Uplink):
    """Of a session whose worker claims it, keeps its lease and says goodbye, as with all work of its host."""

    _latest: tuple[str, Mapping[str, Any]]

    def hold(self, assignment: Assignment) -> None:
        """The worker does."""

    def release(self) -> None:
        """The worker does."""

    def end(self, outcome: str, reason: str) -> None:
        """The worker does, when its spool is empty."""

    def is_wanted(self, position: int) -> bool:
        if trouble := self.trouble():
            # What could not be kept is not measured; the reason goes to the server with the end.
            raise InfrastructureError(trouble)
        return super().is_wanted(position)

    def store(self, position: int, body: Mapping[str, Any]) -> None:
        self._latest = (f"boots/{position}", body)

    def deliver(self) -> bool:
        """A result that finds no room in the spool goes without it."""
        call, body = self._latest
        try:
            self._spool.put(self._path(call), dict(body))
            return super().deliver()
        except OSError as error:
            self._log.failure("spool-failed", reason=str(error))
            return self._post(call, body, patience=_LAST_PATIENCE).get("continue") is not False


def _forget_old(directory: Path) -> None:
    """Remove what agents that were killed left a day ago or earlier."""
    for path in directory.iterdir():
        if path.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
