"""Building one kernel: configuration, image, perf, modules and what is reported."""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidemark_agent.build.checkout import Checkout
from tidemark_agent.build.failure import LONGEST_EXCERPT, log_tail, read_log
from tidemark_agent.build.maker import Architecture, EndedError, Maker, StepError, architecture, toolchain_of
from tidemark_agent.build.modules import (
    MODULES_TARGET,
    ModuleArchive,
    has_modules,
    lost_symbols,
    parse_config,
    random_parts,
)
from tidemark_agent.build.objects import (
    LARGEST_ARTIFACT,
    ObjectDirs,
    drop_leftovers,
    heed_clock,
    is_published,
    put_file,
    take_file,
    told_objects,
)
from tidemark_agent.errors import InfrastructureError, KernelError, UnfitError, file_trouble
from tidemark_agent.log import Log
from tidemark_agent.system.disk import held_lock, open_strange, remove_tree
from tidemark_agent.system.elf import build_id_of_file, hashes_of_file, with_modules
from tidemark_agent.wire.assignment import BuildJob

_FRAGMENT = "tidemark.fragment"
# That of a kernel with everything in it has less than one MiB.
_LARGEST_CONFIG = 2 * 1024**2
_MOST_NAMED: Final = 20
# The release must not depend on which commit was checked out or whether git is there: one tree hash, one kernel.
_FIXED: Final = "\n# CONFIG_LOCALVERSION_AUTO is not set\n"
_COMPILER_TEXT: Final = "CONFIG_CC_VERSION_TEXT"


@dataclass(frozen=True)
class Configuration:
    """The configuration of one build; `copy` is where its .config is kept for the agent's own eyes."""

    maker: Maker
    checkout: Checkout
    compiler_version: str
    copy: Path

    def make(self) -> str:
        """Make .config anew; its text, checked.

        Any file of a tree may decide about it (defconfigs, Makefiles, programs that Kconfig starts), so none that an
        earlier commit left is taken for this one's. Where it came out the same, it keeps its time: kbuild then has
        nothing to do for it.
        """
        objects = self.maker.objects
        before, written = _kept(objects, ".config")
        put_file(objects, ".config", "")
        put_file(objects, _FRAGMENT, self._fragment)
        self.maker.make(self.maker.job.config_base)
        self.maker.merge_fragment(_FRAGMENT)
        self.maker.make("olddefconfig")
        take_file(objects, ".config", self.copy, largest=_LARGEST_CONFIG)
        if before and self.copy.read_bytes() == before:
            os.utime(objects / ".config", ns=(written, written), follow_symlinks=False)
        text = self.copy.read_text(encoding="utf-8", errors="replace")
        self._check(text)
        return text

    @property
    def _fragment(self) -> str:
        return self.maker.job.fragment + _FIXED

    def _check(self, text: str) -> None:
        lost = lost_symbols(self._fragment, text)
        if lost:
            known = self.checkout.known_symbols(self.maker.job.commit, list(lost))
            told = [
                f"{symbol}={how}" + ("" if symbol in known else ", a symbol that this tree does not have")
                for symbol, how in lost.items()
            ]
            raise KernelError(f"config symbols not kept: {', '.join(told[:_MOST_NAMED])}")
        used = parse_config(text).get(_COMPILER_TEXT, "").strip('"')
        # Kbuild leaves out the number sign.
        if used and used[: len(self.compiler_version)] != self.compiler_version.replace("#", "").replace('"', ""):
            raise KernelError(f"the tree compiles with {used[:200]}, not with {self.compiler_version}")
        if parts := random_parts(text):
            self.maker.note(f"tidemark: no two builds of this kernel are the same, because of {', '.join(parts)}")


def _kept(objects: Path, name: str) -> tuple[bytes, int]:
    """What the last build left, and when (ns) it was written; nothing of whatever no honest build leaves there."""
    try:
        with open_strange(objects, name) as file:
            found = os.fstat(file.fileno())
            return (file.read(), found.st_mtime_ns) if found.st_size <= _LARGEST_CONFIG else (b"", 0)
    except OSError:
        return b"", 0


# perf, built from the same tree as the kernel: one static program that runs on any machine of its architecture.
#
# Left out is all that needs a library beyond the C library: scripting, the text interface, symbols of DWARF. What
# counts events and runs `perf bench` stays. A tree whose perf does not build is no broken kernel: then there is none.

_FOLDER: Final = "tidemark-perf"
# Stripped and static it has 4 to 12 MiB.
_LARGEST: Final = 128 * 1024**2
# Those that a tree does not know do nothing.
_WITHOUT: Final = (
    "AUXTRACE",
    "BACKTRACE",
    "BIONIC",
    "CAPSTONE",
    "CORESIGHT",
    "DEMANGLE",
    "DWARF",
    "GTK2",
    "JEVENTS",
    "JVMTI",
    "LIBAUDIT",
    "LIBBABELTRACE",
    "LIBBPF",
    "LIBCAP",
    "LIBCRYPTO",
    "LIBDEBUGINFOD",
    "LIBDW",
    "LIBDW_DWARF_UNWIND",
    "LIBELF",
    "LIBLLVM",
    "LIBNUMA",
    "LIBPERL",
    "LIBPFM4",
    "LIBPYTHON",
    "LIBTRACEEVENT",
    "LIBUNWIND",
    "LIBZSTD",
    "LZMA",
    "RUST",
    "SDT",
    "SLANG",
    "ZLIB",
)


@dataclass(frozen=True)
class PerfProgram:
    """Makes perf in a folder of its own below the object directory, so that it is as incremental as the kernel is."""

    maker: Maker
    scratch: Path

    def make(self) -> Path | None:
        """The program; None, with the reason in the build's log, where it cannot be made."""
        made = self.scratch / "perf"
        try:
            self._compile()
            take_file(self.maker.objects, f"{_FOLDER}/perf", made, largest=_LARGEST)
        except KernelError as error:
            self.maker.note(f"tidemark: there is no perf of this tree: {error}")
            if isinstance(error, EndedError):
                remove_tree(self.maker.objects / _FOLDER)
            return None
        return made

    def _compile(self) -> None:
        folder = self.maker.objects / _FOLDER
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise KernelError(f"the build left something else in place of {_FOLDER}")
        folder.mkdir(exist_ok=True)
        output = self.maker.inside(_FOLDER)
        self.maker.run_make(
            "tools/perf",
            f"O={output}",
            f"JOBS={self.maker.job.jobs}",
            "LDFLAGS=-static -s",
            "EXTRA_CFLAGS=-O2",
            "WERROR=0",
            *(f"NO_{name}=1" for name in _WITHOUT),
            f"{output}/perf",
        )


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
        with told_objects(maker.objects, self._root / "object-count", self.progress):
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
