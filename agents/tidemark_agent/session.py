"""The session runner: makes the planned boots one after another and hands over what each gave."""

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.benchmarks.bundle import Benchmark, compiled_program, find_benchmark, static_program
from tidemark_agent.boot.driver import BootOutcome
from tidemark_agent.boot.qemu import COUNTED_KHZ, INIT_SOURCE, QemuDriver, build_initramfs, host_tsc_khz, split_cases
from tidemark_agent.errors import InfrastructureError, RefusedError, UnauthorizedError, UnreachableError
from tidemark_agent.log import Log
from tidemark_agent.system.process import heed_stop
from tidemark_agent.wire.assignment import PlannedBoot, PlannedCase, SessionJob
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.spool import Sent, Spool

_IMAGE_PATIENCE = 600.0
_KEPT_IMAGES = 24
_KEPT_INITRAMFS = 4
_FORGOTTEN_SECONDS = 24 * 3600


@dataclass(frozen=True)
class SessionRunner:
    """Runs the boots of one attempt. `patience` is how long one result waits for the server before the next boot.

    `require` raises StoppedError when nobody wants the work any more.
    """

    key: str
    job: SessionJob
    state: Path
    client: Client
    spool: Spool
    log: Log
    stop: threading.Event
    progress: Callable[[str], None]
    require: Callable[[], None]
    patience: float

    def run(self) -> str:
        """Make the boots; returns why the attempt failed, or "" when all was done or nothing more is wanted."""
        work = self._cache("boots") / self.key
        _forget_old(work.parent)
        work.mkdir(exist_ok=True)
        try:
            cases, skipped = split_cases(self.job.cases, self._benchmarks())
            driver = self._driver(work, cases)
            for boot in self.job.boots:
                self.progress(f"boot {boot.position} ({boot.arm})")
                if trouble := self.spool.trouble():
                    # What could not be kept is not measured; the reason goes to the server with the end.
                    return trouble
                if not self._is_wanted(boot):
                    return ""
                outcome = driver.boot(self.job.kernels[boot.arm], cases)
                outcome = replace(outcome, notes=(*outcome.notes, *skipped))
                if outcome.outcome not in {"measured", "infrastructure"}:
                    # Nothing is said against a kernel or a machine for work that somebody has ended.
                    self.require()
                elif outcome.outcome == "infrastructure":
                    # What failed may have been ended together with the agent.
                    heed_stop(self.stop)
                self.log.info("boot-ended", position=boot.position, arm=boot.arm, outcome=outcome.outcome)
                if not self._hand_over(boot, outcome):
                    return ""
                if outcome.outcome == "infrastructure":
                    # The next boot would meet the same trouble and use up its tries.
                    return outcome.reason
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return ""

    def _driver(self, work: Path, cases: Sequence[PlannedCase]) -> QemuDriver:
        if self.job.boot_driver != "qemu":
            raise InfrastructureError(f"the boot driver {self.job.boot_driver} needs `service` on the machine itself")
        return QemuDriver(
            arch=self.job.arch,
            options=self.job.options,
            clock=self.job.clock,
            sandbox=self.job.sandbox,
            timeout_seconds=self.job.boot_timeout_seconds,
            image={kernel.image: self._image(kernel.image) for kernel in self.job.kernels.values()},
            initramfs=self._initramfs(cases),
            tsc_khz=self._tsc_khz(),
            work=work,
            log=self.log,
            stop=self.stop,
        )

    def _image(self, sha256: str) -> Path:
        """The kernel image with this hash, from the cache or the server."""
        directory = self._cache("images")
        path = directory / sha256
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            path.touch()
            return path
        try:
            self.client.fetch_artifact(sha256, path, patience=_IMAGE_PATIENCE)
        except RefusedError as error:
            raise InfrastructureError(f"the server does not give image {sha256}: {error}") from error
        _keep_newest(directory, _KEPT_IMAGES)
        return path

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

    def _cache(self, name: str) -> Path:
        path = self.state / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def _initramfs(self, cases: Sequence[PlannedCase]) -> Path:
        cache = self._cache("benchmarks")
        wanted = {case.benchmark for case in cases}
        programs = {
            name: compiled_program(benchmark, cache=cache, stop=self.stop, arch=self.job.arch)
            for name, benchmark in self._benchmarks().items()
            if name in wanted
        }
        init = static_program(INIT_SOURCE, arch=self.job.arch, cache=cache, stop=self.stop)
        archive = build_initramfs(cases, programs, init=init)
        path = self._cache("initramfs") / hashlib.sha256(archive).hexdigest()
        if not path.is_file():
            partial = path.with_name(f"{path.name}.{self.key}")
            partial.write_bytes(archive)
            partial.replace(path)
            _keep_newest(path.parent, _KEPT_INITRAMFS)
        return path

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

    def _is_wanted(self, boot: PlannedBoot) -> bool:
        try:
            answer = self.client.post(f"attempts/{self.key}/boots/{boot.position}/start", {}, patience=self.patience)
        except (UnreachableError, UnauthorizedError):
            return True
        return answer.get("continue") is not False

    def _hand_over(self, boot: PlannedBoot, outcome: BootOutcome) -> bool:
        """Spool the result and try to send it; False when the server wants no more."""
        path = f"attempts/{self.key}/boots/{boot.position}"
        body = boot_body(outcome)
        try:
            self.spool.put(path, body)
            sent = self.spool.upload(self.client, patience=self.patience)
        except OSError as error:
            self.log.failure("spool-failed", reason=str(error))
            sent = [Sent(path, self.client.post(path, body, patience=_IMAGE_PATIENCE))]
        except UnreachableError:
            return True
        return not any(item.path == path and item.answer.get("continue") is False for item in sent)


def boot_body(outcome: BootOutcome) -> dict[str, Any]:
    """A boot result as the protocol writes it."""
    return {
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "boot_id": outcome.boot_id,
        "build_id": outcome.build_id,
        "started_at": outcome.started_at.isoformat(),
        "ended_at": outcome.ended_at.isoformat(),
        "facts": outcome.facts.as_json() if outcome.facts else {},
        "console_tail": outcome.console_tail,
        "measurements": [
            {
                "benchmark": measurement.benchmark,
                "version": measurement.version,
                "case": measurement.case,
                "metric": measurement.metric,
                "core_type": "all",
                "values": list(measurement.values),
                "warmup": measurement.warmup,
            }
            for measurement in outcome.measurements
        ],
        "notes": [
            {"benchmark": note.benchmark, "case": note.case, "outcome": note.outcome, "reason": note.reason}
            for note in outcome.notes
        ],
    }


def _forget_old(directory: Path) -> None:
    """Remove what agents that were killed left a day ago or earlier."""
    for path in directory.iterdir():
        if path.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _keep_newest(directory: Path, count: int) -> None:
    files = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[count:]:
        path.unlink(missing_ok=True)
