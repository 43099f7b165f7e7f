"""From a build assignment to a kernel: check out, configure, make, collect."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_agent.assignment import BuildJob
from tidemark_agent.build.checkout import Checkout
from tidemark_agent.build.elf import build_id_of_file
from tidemark_agent.build.failure import log_tail, read_log
from tidemark_agent.build.kconfig import lost_symbols
from tidemark_agent.build.maker import Maker
from tidemark_agent.build.modules import MODULES_TARGET, ModuleArchive, has_modules
from tidemark_agent.build.objects import ObjectDirs, is_of_series, take_file
from tidemark_agent.errors import InfrastructureError, KernelError, file_trouble
from tidemark_agent.locks import held_lock
from tidemark_agent.log import Log

# Architecture to make's target and the image it leaves.
_IMAGES = {"x86_64": ("bzImage", "arch/x86/boot/bzImage")}
_FRAGMENT = "tidemark.fragment"
_STAMP = "tidemark.stamp"
# That of a kernel with everything in it has less than one MiB.
_LARGEST_CONFIG = 16 * 1024**2


@dataclass(frozen=True)
class BuildOutcome:
    """How a build ended; `files` maps artifact kinds to what is to be uploaded."""

    outcome: str
    seconds: float
    reason: str = ""
    build_id: str = ""
    compiler_version: str = ""
    log_tail: str = ""
    files: dict[str, Path] = field(default_factory=dict)


@dataclass
class _Findings:
    """What is known so far, so that a failed build still says which compiler it had."""

    build_id: str = ""
    compiler_version: str = ""


@dataclass(frozen=True)
class KernelBuilder:
    """Builds one assigned kernel below `work`, one directory for each tree."""

    job: BuildJob
    work: Path
    ccache: Path
    log: Log
    stop: threading.Event
    progress: Callable[[str], None]

    @contextmanager
    def built(self) -> Iterator[BuildOutcome]:
        """Build; the files of the outcome are its own until the context ends, for so long the tree's lock is held."""
        self._build_log.parent.mkdir(parents=True, exist_ok=True)
        with held_lock(self._tree / "lock", stop=self.stop):
            yield self._outcome()

    def _outcome(self) -> BuildOutcome:
        started = time.monotonic()
        found = _Findings()
        outcome, reason = "built", ""
        files: dict[str, Path] = {}
        try:
            files = self._build(found)
        except KernelError as error:
            outcome, reason = "failed", str(error)
        except InfrastructureError as error:
            outcome, reason = "infrastructure", str(error)
        except OSError as error:
            outcome, reason = "infrastructure", file_trouble(error)
        tail = ""
        if self._build_log.exists():
            files["log"] = self._build_log
            tail = log_tail(read_log(self._build_log))
        self.log.info("build-ended", outcome=outcome, reason=reason, build_id=found.build_id)
        return BuildOutcome(
            outcome=outcome,
            seconds=round(time.monotonic() - started, 3),
            reason=reason,
            build_id=found.build_id if outcome == "built" else "",
            compiler_version=found.compiler_version,
            log_tail=tail,
            files=files,
        )

    @property
    def _tree(self) -> Path:
        return self.work / self.job.tree

    @property
    def _root(self) -> Path:
        """One directory for each configuration and compiler, so that switching between them rebuilds nothing."""
        text = "\0".join(
            (self.job.fragment, self.job.config_base, self.job.arch, self.job.compiler, str(self.job.sandbox))
        )
        return self._tree / f"{self.job.config_name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def _build_log(self) -> Path:
        return self._root / "build.log"

    def _build(self, found: _Findings) -> dict[str, Path]:
        if self.job.arch not in _IMAGES:
            raise InfrastructureError(f"this agent cannot build for {self.job.arch}")
        self._build_log.unlink(missing_ok=True)
        target, image = _IMAGES[self.job.arch]
        self.progress("checking out")
        checkout = Checkout(source=self._tree / "src", scratch=self._root, stop=self.stop, log=self.log)
        checkout.move_to(self.job.commit, git_url=self.job.git_url, ref=self.job.ref)
        keep = not is_of_series(self.job.ref)
        dirs = ObjectDirs(root=self._root, stop=self.stop)
        objects = dirs.open(keep=keep)
        self.ccache.mkdir(parents=True, exist_ok=True)
        # The time limit is on the kernel's own work: a slow disk or mirror before it is no fault of the kernel.
        deadline = time.monotonic() + self.job.timeout_seconds
        maker = Maker(
            job=self.job,
            source=checkout.source,
            objects=objects,
            ccache=self.ccache,
            keep=keep,
            build_log=self._build_log,
            deadline=deadline,
            stop=self.stop,
        )
        found.compiler_version = maker.compiler_version()
        try:
            self._configure(maker, checkout, found.compiler_version)
            modules = has_modules((self._root / "config").read_text(encoding="utf-8", errors="replace"))
            self.progress("compiling")
            maker.make(target, *([MODULES_TARGET] if modules else []))
            files = self._collect(objects, image)
            if modules:
                self.progress("compiling modules of benchmarks")
                files["modules"] = self._root / "modules"
                ModuleArchive(maker=maker, scratch=self._root).write(files["modules"])
        except KernelError:
            if time.monotonic() < deadline:
                # Make ended by itself. A make that was killed may have left half an object: the mark stays.
                dirs.close()
            raise
        found.build_id = build_id_of_file(self._root / "vmlinux")
        dirs.close()
        if not found.build_id:
            raise KernelError("vmlinux has no GNU build id")
        return files

    def _configure(self, maker: Maker, checkout: Checkout, compiler_version: str) -> None:
        """Make .config anew, unless nothing that decides about it has changed since it was made."""
        objects = maker.objects
        inputs = (self.job.fragment, self.job.config_base, compiler_version, checkout.config_inputs(self.job.commit))
        stamp = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
        config = self._root / "config"
        stamp_file = objects / _STAMP
        if not (stamp_file.is_file() and stamp_file.read_text() == f"{stamp} {_digest(objects / '.config')}"):
            self.progress("configuring")
            stamp_file.unlink(missing_ok=True)
            (objects / _FRAGMENT).write_text(self.job.fragment, encoding="utf-8")
            maker.make(self.job.config_base)
            maker.merge_fragment(_FRAGMENT)
            maker.make("olddefconfig")
        take_file(objects, ".config", config)
        if config.stat().st_size > _LARGEST_CONFIG:
            raise KernelError(f".config takes more than {_LARGEST_CONFIG // 1024**2} MiB")
        lost = lost_symbols(self.job.fragment, config.read_text(encoding="utf-8", errors="replace"))
        if lost:
            raise KernelError(f"config symbols not kept: {', '.join(lost[:20])}")
        stamp_file.unlink(missing_ok=True)
        stamp_file.write_text(f"{stamp} {_digest(config)}")

    def _collect(self, objects: Path, image: str) -> dict[str, Path]:
        self.progress("collecting")
        wanted = {"image": image, "config": ".config", "system-map": "System.map"}
        files = {kind: self._root / kind for kind in wanted}
        for kind, name in wanted.items():
            take_file(objects, name, files[kind])
        take_file(objects, "vmlinux", self._root / "vmlinux")
        return files


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
