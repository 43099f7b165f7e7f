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
from tidemark_agent.build.configuration import Configuration
from tidemark_agent.build.elf import build_id_of_file
from tidemark_agent.build.failure import LONGEST_EXCERPT, log_tail, read_log
from tidemark_agent.build.maker import EndedError, Maker, StepError
from tidemark_agent.build.modules import MODULES_TARGET, ModuleArchive, has_modules
from tidemark_agent.build.objects import (
    LARGEST_ARTIFACT,
    ObjectDirs,
    drop_leftovers,
    heed_clock,
    is_published,
    take_file,
)
from tidemark_agent.build.perf import PerfProgram
from tidemark_agent.build.text_hash import hashes_of_file, with_modules
from tidemark_agent.build.toolchain import Architecture, architecture, toolchain_of
from tidemark_agent.errors import InfrastructureError, KernelError, UnfitError, file_trouble
from tidemark_agent.locks import held_lock
from tidemark_agent.log import Log


@dataclass(frozen=True)
class BuildOutcome:
    """How a build ended; `files` maps artifact kinds to what is to be uploaded, `unfit`: the host can build nothing."""

    outcome: str
    seconds: float
    reason: str = ""
    build_id: str = ""
    text_hash: str = ""
    kernel_hash: str = ""
    compiler_version: str = ""
    first_error: str = ""
    log_tail: str = ""
    unfit: bool = False
    files: dict[str, Path] = field(default_factory=dict)


@dataclass
class _Findings:
    """What is known so far, so that a failed build still says which compiler it had."""

    build_id: str = ""
    text_hash: str = ""
    kernel_hash: str = ""
    compiler_version: str = ""
    first_error: str = ""


@dataclass(frozen=True)
class KernelBuilder:
    """Builds one assigned kernel below `work`, one directory for each tree."""

    job: BuildJob
    work: Path
    ccache: Path
    log: Log
    stop: threading.Event
    progress: Callable[[str], None]
    git_credentials: Path | None = None

    @contextmanager
    def built(self) -> Iterator[BuildOutcome]:
        """Build; the files of the outcome are its own until the context ends, for so long the tree's lock is held."""
        self._build_log.parent.mkdir(parents=True, exist_ok=True)
        with held_lock(self._tree / "lock", stop=self.stop):
            drop_leftovers(self.work, beside=self._tree)
            if heed_clock(self._tree):
                self.log.warning("clock-was-ahead", tree=self.job.tree)
            try:
                yield self._outcome()
            finally:
                heed_clock(self._tree)

    def _outcome(self) -> BuildOutcome:
        started = time.monotonic()
        found = _Findings()
        outcome, reason, unfit = "built", "", False
        files: dict[str, Path] = {}
        try:
            files = self._build(found)
        except KernelError as error:
            outcome, reason = "failed", str(error)
            found.first_error = (error.excerpt if isinstance(error, StepError) else "") or reason
        except InfrastructureError as error:
            outcome, reason, unfit = "infrastructure", str(error), isinstance(error, UnfitError)
        except RecursionError:
            outcome, reason = "failed", "the build nests directories too deep"
        except OSError as error:
            outcome, reason = "infrastructure", file_trouble(error)
        tail = ""
        if self._build_log.exists():
            files["log"] = self._build_log
            tail = log_tail(read_log(self._build_log))
        # A tree decides about some words of it.
        reason = reason[:LONGEST_EXCERPT]
        self.log.info("build-ended", outcome=outcome, reason=reason, build_id=found.build_id)
        return BuildOutcome(
            outcome=outcome,
            seconds=round(time.monotonic() - started, 3),
            reason=reason,
            build_id=found.build_id if outcome == "built" else "",
            text_hash=found.text_hash if outcome == "built" else "",
            kernel_hash=found.kernel_hash if outcome == "built" else "",
            compiler_version=found.compiler_version,
            first_error=found.first_error[:LONGEST_EXCERPT],
            log_tail=tail,
            unfit=unfit,
            files=files,
        )

    @property
    def _tree(self) -> Path:
        return self.work / self.job.tree

    @property
    def _root(self) -> Path:
        """One directory for each configuration and compiler, so that switching between them rebuilds nothing."""
        job = self.job
        decides = (job.fragment, job.config_base, job.arch, job.family, job.cross_compile, job.compiler)
        text = "\0".join((*decides, str(job.sandbox)))
        return self._tree / f"{self.job.config_name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def _build_log(self) -> Path:
        return self._root / "build.log"

    def _build(self, found: _Findings) -> dict[str, Path]:
        made = architecture(self.job.arch)
        self._build_log.unlink(missing_ok=True)
        self.progress("checking out")
        checkout = Checkout(
            source=self._tree / "src",
            scratch=self._root,
            stop=self.stop,
            log=self.log,
            credentials=self.git_credentials,
        )
        checkout.move_to(self.job.commit, git_url=self.job.git_url, ref=self.job.ref)
        dirs = ObjectDirs(root=self._root, tools=toolchain_of(self.job).fingerprint(), stop=self.stop)
        # The time limit is on the kernel's own work: a slow disk or mirror before it is no fault of the kernel.
        maker = self._maker(checkout, dirs)
        kept = self.job.commit if maker.keep else ""
        found.compiler_version = maker.compiler_version()
        try:
            self.progress("configuring")
            copy = self._root / "config"
            config = Configuration(maker, checkout, found.compiler_version, copy).make()
            files = self._compile(maker, made, has_modules=has_modules(config))
            found.build_id = build_id_of_file(self._root / "vmlinux")
            if not found.build_id:
                raise KernelError("vmlinux has no GNU build id")
            hashes = hashes_of_file(self._root / "vmlinux")
            modules = files.get("modules")
            found.text_hash = hashes.text
            found.kernel_hash = with_modules(hashes.kernel, modules) if modules else hashes.kernel
        except KernelError as error:
            # A make that ended by itself has left nothing half-written. After one that was killed the mark stays.
            if not isinstance(error, EndedError):
                dirs.close(kept)
            raise
        finally:
            dirs.drop_copies()
        dirs.close(kept)
        return files

    def _maker(self, checkout: Checkout, dirs: ObjectDirs) -> Maker:
        keep = is_published(self.job.ref)
        known = dirs.commit
        objects = dirs.open(keep=keep, empty=not known or checkout.may_shadow(known, self.job.commit))
        self.ccache.mkdir(parents=True, exist_ok=True)
        return Maker(
            job=self.job,
            toolchain=toolchain_of(self.job),
            source=checkout.source,
            objects=objects,
            ccache=self.ccache,
            keep=keep,
            build_log=self._build_log,
            deadline=time.monotonic() + self.job.timeout_seconds,
            stop=self.stop,
        )

    def _compile(self, maker: Maker, made: Architecture, *, has_modules: bool) -> dict[str, Path]:
        self.progress("compiling")
        maker.make(made.target, *([MODULES_TARGET] if has_modules else []))
        files = self._collect(maker.objects, made.image)
        if has_modules:
            self.progress("compiling modules of benchmarks")
            files["modules"] = self._root / "modules"
            ModuleArchive(maker=maker, scratch=self._root).write(files["modules"])
        if self.job.perf:
            self.progress("compiling perf")
            if perf := PerfProgram(maker=maker, scratch=self._root).make():
                files["perf"] = perf
        return files

    def _collect(self, objects: Path, image: str) -> dict[str, Path]:
        self.progress("collecting")
        wanted = {"image": image, "config": ".config", "system-map": "System.map"}
        files = {kind: self._root / kind for kind in wanted}
        for kind, name in wanted.items():
            take_file(objects, name, files[kind], largest=LARGEST_ARTIFACT)
        take_file(objects, "vmlinux", self._root / "vmlinux")
        return files
