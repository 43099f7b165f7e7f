"""The machine of a session: kernels installed, booted, and the safe kernel."""

import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tidemark_agent.boot.driver import CurrentDriver, KernelFiles, RebootDriver, Reboots
from tidemark_agent.boot.evidence import (
    Evidence,
    RunningSystem,
    collect_evidence,
    command_line,
    forget_evidence,
    running_system,
)
from tidemark_agent.boot.install import install_modules, remove_modules, unpack_modules
from tidemark_agent.boot.loader import GrubDriver, KexecDriver
from tidemark_agent.config import AgentConfig, BootConfig
from tidemark_agent.errors import InfrastructureError, RefusedError, StoppedError, UnreachableError
from tidemark_agent.lab.engine import CURRENT
from tidemark_agent.lab.journal import Journal, Progress, progress_of
from tidemark_agent.lab.measurement import Measuring
from tidemark_agent.log import Log
from tidemark_agent.prepare import Preparation
from tidemark_agent.system.disk import make_directory, settle, sync_directory, temporary_for
from tidemark_agent.system.process import capture
from tidemark_agent.wire.assignment import KernelImage, PlannedBoot, SessionJob

_FETCH_PATIENCE = 600.0
_INITRAMFS_SECONDS = 600.0
# Images and modules of both kernels of a session, and those of the session before, which may come again.
_KEPT = 8
_KEPT_IMAGES = 24
# Of a bzImage: "HdrS" at 0x202, and at 0x20e where the release stands, counted from 0x200.
_MAGIC_AT, _RELEASE_AT, _RELEASE_BASE = 0x202, 0x20E, 0x200
_HEADER_BYTES = 64 * 1024
_RELEASE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._+~-]{0,63}")


class Artifacts(Protocol):
    """Where kernels come from."""

    def fetch_artifact(self, sha256: str, target: Path, *, patience: float) -> None: ...


@dataclass(frozen=True)
class KernelStore:
    """The kernels that this machine holds. `state` is the agent's state directory."""

    state: Path
    config: BootConfig
    artifacts: Artifacts
    stop: threading.Event
    root: Path = Path("/")

    def fetch(self, kernels: Iterable[KernelImage], programs: Mapping[str, str] | None = None) -> None:
        """Bring all that a session needs to this disk: a kernel under test may have no network.

        `programs` are hashes by the name under which the program is run.
        """
        needed = [sha256 for kernel in kernels for sha256 in (kernel.image, kernel.modules) if sha256]
        for sha256 in needed:
            self._fetched(sha256)
        for name, sha256 in (programs or {}).items():
            self._make_program(name, sha256)
        # By a clock that was set back what was just fetched looks oldest.
        keep_newest(self._directory("kernels"), _KEPT, needed)

    def fetch_images(self, kernels: Iterable[KernelImage]) -> dict[str, Path]:
        """The images alone, by their hashes: an emulator's kernel brings no modules along."""
        found = {kernel.image: self.image(kernel) for kernel in kernels}
        keep_newest(self._directory("kernels"), _KEPT_IMAGES, found)
        return found

    def image(self, kernel: KernelImage) -> Path:
        return self._fetched(kernel.image)

    def benchmark_modules(self, kernel: KernelImage) -> Path | None:
        """The directory with the benchmark modules that were built with this kernel."""
        place = self._unpacked(kernel) / "tidemark"
        return place if kernel.modules and place.is_dir() else None

    def program(self, name: str, sha256: str) -> Path | None:
        """A program that was fetched, None where there is none or it is no longer what it was."""
        path = self._directory("programs") / sha256 / name
        return path if path.is_file() and _hash_of(path) == sha256 else None

    def prepare(self, kernel: KernelImage) -> Path | None:
        """Put the modules of `kernel` where it looks for them; its initramfs, if this machine wants one."""
        release = ""
        if kernel.modules:
            release = self._install(kernel)
        if not self.config.initramfs:
            return None
        image = self.image(kernel)
        return self._initramfs(kernel, image, release or release_of_image(image))

    def tidy(self) -> None:
        """Remove what only the sessions needed; images and archives stay for a while, unpacked trees do not."""
        remove_modules(self.root)
        for name in ("modules", "initramfs", "programs"):
            shutil.rmtree(self._directory(name), ignore_errors=True)

    def _make_program(self, name: str, sha256: str) -> None:
        if self.program(name, sha256) is None:
            path = self._directory("programs") / sha256 / name
            make_directory(path.parent)
            made = temporary_for(path)
            shutil.copyfile(self._fetched(sha256), made)
            made.chmod(0o755)
            settle(made, path)

    def _install(self, kernel: KernelImage) -> str:
        unpacked = self._unpacked(kernel)
        note = unpacked / "release"
        if not note.is_file():
            archive = self._fetched(kernel.modules)
            fresh = temporary_for(unpacked)
            release = unpack_modules(archive, fresh)
            (fresh / "release").write_text(release, encoding="ascii")
            shutil.rmtree(unpacked, ignore_errors=True)
            _settle_tree(fresh, unpacked)
        release = note.read_text(encoding="ascii")
        if release:
            install_modules(unpacked, release, mark=kernel.modules, root=self.root)
            if shutil.which("depmod") and self.root == Path("/"):
                capture(["depmod", release], scratch=self.state, timeout=_INITRAMFS_SECONDS, stop=self.stop)
        return release

    def _initramfs(self, kernel: KernelImage, image: Path, release: str) -> Path:
        target = self._directory("initramfs") / f"{kernel.image[:16]}-{kernel.modules[:16]}.img"
        if target.is_file():
            return target
        made = temporary_for(target)
        modules = self.root / "lib/modules" / release
        places = {"initramfs": str(made), "release": release, "image": str(image), "modules": str(modules)}
        try:
            command = [_filled(word, places) for word in self.config.initramfs]
            capture(command, scratch=self.state, timeout=_INITRAMFS_SECONDS, stop=self.stop)
            if not made.is_file():
                raise InfrastructureError(f"{command[0]} made no {{initramfs}}")
            settle(made, target)
        finally:
            made.unlink(missing_ok=True)
        return target

    def _fetched(self, sha256: str) -> Path:
        """The artifact with this hash, from the disk or the service; what the disk has is hashed anew."""
        directory = self._directory("kernels")
        path = directory / sha256
        if path.is_file() and _hash_of(path) == sha256:
            path.touch()
            return path
        try:
            self.artifacts.fetch_artifact(sha256, path, patience=_FETCH_PATIENCE)
        except (RefusedError, UnreachableError) as error:
            if self.stop.is_set():
                raise StoppedError("stopped while a kernel was fetched") from error
            raise InfrastructureError(f"the server does not give {sha256}: {error}") from error
        settle(path, path)
        return path

    def _unpacked(self, kernel: KernelImage) -> Path:
        return self._directory("modules") / (kernel.modules or "none")

    def _directory(self, name: str) -> Path:
        path = self.state / "lab" / name
        make_directory(path)
        return path


def release_of_image(image: Path) -> str:
    """`uname -r` of a bzImage; raises InfrastructureError for other formats, where only its modules can tell."""
    with image.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if header[_MAGIC_AT : _MAGIC_AT + 4] == b"HdrS":
        at = _RELEASE_BASE + int.from_bytes(header[_RELEASE_AT : _RELEASE_AT + 2], "little")
        found = _RELEASE.match(header, at)
        if found:
            return found[0].decode("ascii")
    raise InfrastructureError("the kernel's release is not known: it came without modules and is no bzImage")


def _settle_tree(fresh: Path, target: Path) -> None:
    """Give an unpacked tree its name once all of it is on the disk."""
    os.sync()
    fresh.rename(target)
    sync_directory(target.parent)


def _filled(word: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        word = word.replace(f"{{{name}}}", value)
    return word


def _hash_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def keep_newest(directory: Path, count: int, needed: Collection[str] = ()) -> None:
    files = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[count:]:
        if path.name not in needed:
            path.unlink(missing_ok=True)


# A clean shutdown of a big machine takes a minute or two; then something is wrong.
_REBOOT_SECONDS = 600.0
_PERF = "perf"


@dataclass(frozen=True)
class LabMachine:
    """Everything that a session does to this machine."""

    config: AgentConfig
    journal: Journal
    preparation: Preparation
    kernels: KernelStore
    log: Log
    stop: threading.Event
    tell: Callable[[str], None]
    root: Path = Path("/")

    def running(self) -> RunningSystem:
        return running_system(self.root)

    def driver(self, job: SessionJob) -> RebootDriver:
        reboots = Reboots(self.config.boot, self.root)
        scratch = self._scratch()
        if job.boot_driver == "kexec":
            return KexecDriver(reboots, scratch, self.log, self.stop, self.root)
        if job.boot_driver == "grub":
            return GrubDriver(self.config.boot.grub_environment, reboots, scratch, self.log, self.stop)
        if job.boot_driver == CURRENT:
            return CurrentDriver()
        raise InfrastructureError(f"the boot driver {job.boot_driver} does not work inside the machine that it boots")

    def _scratch(self) -> Path:
        """In memory where that is possible: the way home must not depend on a disk with room."""
        memory = self.root / "run" / "tidemark-agent"
        try:
            memory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return self.config.state_dir
        return memory

    def kernel_files(self, job: SessionJob, boot: PlannedBoot, nonce: str) -> KernelFiles:
        kernel = job.kernels[boot.arm]
        self.kernels.fetch(job.kernels.values(), {_PERF: job.perf} if self._takes_perf(job) else {})
        base = self.config.boot.command_line or self._safe_command_line()
        more = job.options.get("command_line", "")
        if not isinstance(more, str):
            raise InfrastructureError(f"the machine's option command_line is {more!r}")
        return KernelFiles(
            image=self.kernels.image(kernel),
            build_id=kernel.build_id,
            command_line=command_line(base, words=[self.config.boot.words, more], nonce=nonce),
            initramfs=self.kernels.prepare(kernel),
        )

    def _safe_command_line(self) -> str:
        """What the safe kernel was started with: a test kernel's own line has this machine's words in it already."""
        return progress_of(self.journal.entries()).safe_command_line or self.running().command_line

    def evidence(self, nonce: str, known: tuple[str, ...]) -> Evidence:
        return collect_evidence(self.root, nonce, known)

    def forget_evidence(self) -> tuple[str, ...]:
        return tuple(forget_evidence(self.root, self.config.state_dir / "lab" / "pstore"))

    def measure(self, progress: Progress, boot: PlannedBoot, running: RunningSystem) -> dict[str, Any]:
        return Measuring(
            config=self._config_for(progress.job),
            journal=self.journal,
            preparation=self.preparation,
            modules=self.kernels.benchmark_modules(progress.job.kernels[boot.arm]),
            log=self.log,
            stop=self.stop,
            tell=self.tell,
            root=self.root,
        ).measure(progress, boot, running)

    def _takes_perf(self, job: SessionJob) -> bool:
        """Whether the session's own perf is used: what the operator names goes first."""
        return bool(job.perf) and _PERF not in self.config.programs

    def _config_for(self, job: SessionJob) -> AgentConfig:
        """The configuration with the session's perf, the same for both arms, where the operator named none."""
        perf = self.kernels.program(_PERF, job.perf) if self._takes_perf(job) else None
        return replace(self.config, programs={**self.config.programs, _PERF: perf}) if perf else self.config

    def wait_for_end(self) -> None:
        if self.stop.wait(_REBOOT_SECONDS):
            raise StoppedError("the machine goes down")
        self.log.failure("no-reboot", seconds=_REBOOT_SECONDS)

    def tidy(self) -> None:
        self.preparation.restore()
        self.kernels.tidy()
