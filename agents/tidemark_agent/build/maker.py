"""The programs of a toolchain, and running the steps of a build with them: limits, second tries, and whose fault an
end is.
"""

import hashlib
import os
import re
import shlex
import shutil
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from tidemark_agent.build.failure import (
    Ending,
    Failure,
    failure_of_file,
    log_since,
    place_of,
    read_log,
    says_crashed,
    says_ended,
    says_killed,
    says_short,
)
from tidemark_agent.build.objects import put_file, remove_newer, take_file
from tidemark_agent.errors import InfrastructureError, KernelError, KilledError
from tidemark_agent.guard.cgroup import refused_around
from tidemark_agent.system.disk import alone_on_host, beside_others
from tidemark_agent.system.process import (
    MIB,
    Finished,
    Limits,
    capture,
    clean_environment,
    heed_stop,
    require_memory_group,
    run,
)
from tidemark_agent.system.sandbox import Bind, Sandbox, require_sandbox
from tidemark_agent.wire.assignment import BuildJob

_CLANG: Final = re.compile(r"clang(-[0-9]{1,3}(?:\.[0-9]{1,3})?)?")


@dataclass(frozen=True)
class Architecture:
    """`target` is what make is asked for, `image` what it leaves in the object directory."""

    name: str
    target: str
    image: str


_ARCHITECTURES: Final = (
    Architecture("x86_64", "bzImage", "arch/x86/boot/bzImage"),
    Architecture("arm64", "Image", "arch/arm64/boot/Image"),
)


def architecture(name: str) -> Architecture:
    """Raises InfrastructureError for one that this agent cannot build for."""
    for known in _ARCHITECTURES:
        if known.name == name:
            return known
    raise InfrastructureError(f"this agent cannot build for {name}")


@dataclass(frozen=True)
class Toolchain:
    """The programs of one build; `compiler` is the one that really compiles, prefix and version included."""

    arch: str
    family: str
    compiler: str
    linker: str
    prefix: str
    llvm: str

    def make_words(self) -> list[str]:
        """What make's command line says about the compiler. ccache only saves time, so it may be missing."""
        compiler = f"ccache {self.compiler}" if shutil.which("ccache") else self.compiler
        words = [f"ARCH={self.arch}", f"CC={compiler}"]
        if self.llvm:
            words.append(f"LLVM={self.llvm}")
        if self.prefix:
            # Trees before 5.15 take clang's --target from it.
            words.append(f"CROSS_COMPILE={self.prefix}")
        return words

    @property
    def programs(self) -> tuple[str, ...]:
        """What must be there before anything is compiled: a missing program is never the kernel's fault."""
        return (self.compiler, self.linker)

    @property
    def assembler(self) -> str:
        """Where it is, if the compiler starts a program for that; "" where there is none."""
        return "" if self.llvm else shutil.which(f"{self.prefix}as") or ""

    def fingerprint(self) -> str:
        """Changes when one of the programs is replaced: what another one made is not to be built on."""
        found = []
        for program in (*self.programs, self.assembler):
            path = Path(shutil.which(program) or program).resolve()
            stat = path.stat() if path.is_file() else None
            found.append((str(path), stat and (stat.st_size, stat.st_mtime_ns)))
        return hashlib.sha256(repr(found).encode()).hexdigest()


def toolchain_of(job: BuildJob) -> Toolchain:
    """The programs that a build asks for; raises InfrastructureError when they do not go together."""
    if job.family == "clang":
        named = _CLANG.fullmatch(job.compiler)
        if named is None:
            raise InfrastructureError(f"the compiler {job.compiler} is no clang or clang-VERSION")
        version = named[1] or ""
        return Toolchain(job.arch, "clang", job.compiler, f"ld.lld{version}", job.cross_compile, version or "1")
    bare = job.compiler.removeprefix(job.cross_compile)
    prefix = job.cross_compile
    return Toolchain(job.arch, "gcc", f"{prefix}{bare}", f"{prefix}ld", prefix, "")


# Fixed, so that the same source gives the same bits: no clock, user, host or counter gets into the image.
_REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    "KBUILD_BUILD_USER": "tidemark",
    "KBUILD_BUILD_HOST": "tidemark",
    "KBUILD_BUILD_VERSION": "1",
}
# Here the kernel counts the processes of this room alone, as it would not outside. A command that fails by itself is
# told from a room that fails, or is killed, by a status of its own.
_INSIDE_THE_ROOM = """
most=$1; shift; prlimit --nproc="$most" -- "$@"; code=$?
if [ "$code" -gt 0 ] && [ "$code" -lt 128 ]; then exit 99; fi; exit "$code"
"""
_FAILED_INSIDE = 99
_BY_SIGNAL = 128
_LARGEST_FILE = 4 * 1024**3
_INSIDE = Path("/build")
_TIMES = Path("/proc/stat")
# Of all processors. Below this a build that was too slow was too slow by itself.
_MUCH = 0.25
# A build of many steps may not take many times its time, nor the host from others for ever.
_MOST_TRIES_AGAIN = 4
_PATIENCE_SECONDS = 3600.0
_CONFIG = ".config"
_LARGEST_CONFIG = 2 * MIB


class StepError(KernelError):
    """A step of the build failed by the kernel's fault; `excerpt` is the first error with the lines around it."""

    def __init__(self, reason: str, excerpt: str) -> None:
        super().__init__(reason)
        self.excerpt = excerpt


class EndedError(KernelError):
    """A step was killed for what it took, time or anything else: it may have left half an object."""


class _DoubtfulError(Exception):
    """A step failed in a way in which others may have made it fail; once more will show it."""


class _CrashError(_DoubtfulError):
    """A program of the step crashed at `place`; once more will show whether it always does."""

    def __init__(self, line: str, place: str) -> None:
        super().__init__(f"a program of this step crashed: {line}")
        self.place = place


class _ShortError(_DoubtfulError):
    """A step lacked what all on this host share; once more, alone, will show whether others took it."""


@dataclass
class Maker:
    """Makes targets of one checkout into one object directory. What is waited for others moves the `deadline`."""

    job: BuildJob
    toolchain: Toolchain
    source: Path
    objects: Path
    ccache: Path
    keep: bool
    build_log: Path
    deadline: float
    stop: threading.Event
    tries_again: int = 0

    def compiler_version(self) -> str:
        """The first line of the compiler's --version; also proves that the programs and the sandbox work at all."""
        if self.job.sandbox:
            require_sandbox(self.build_log.parent, self.stop)
        if self.job.needs_cgroup:
            require_memory_group()
        compiler, *_ = [self._version(program) for program in self.toolchain.programs]
        return compiler

    def _version(self, program: str) -> str:
        text = capture(
            self._wrapped([program, "--version"]),
            scratch=self.build_log.parent,
            timeout=60,
            stop=self.stop,
            environment=self._outer_environment(),
        )
        return text.partition("\n")[0].strip()[:200]

    def make(self, *targets: str) -> None:
        """Make targets of the kernel itself."""
        self.run_make("", f"O={self._objects_path}", f"-j{self.job.jobs}", "LOCALVERSION=", *targets)

    def run_make(self, folder: str, *words: str) -> None:
        """Run make in a folder of the source with the toolchain's words and `words`."""
        source = self._source_path / folder
        self.run(["make", "-s", "--no-print-directory", "-C", str(source), *self.toolchain.make_words(), *words])

    def inside(self, name: str) -> str:
        """Where a path of the object directory is for the commands that are run."""
        return str(self._objects_path / name)

    def note(self, line: str) -> None:
        """Write a line of our own into the build log."""
        with self.build_log.open("a", encoding="utf-8") as log_file:
            print(line, file=log_file)

    def merge_fragment(self, name: str) -> None:
        script = self._source_path / "scripts" / "kconfig" / "merge_config.sh"
        out = self._objects_path
        self.run([str(script), "-m", "-O", str(out), str(out / ".config"), str(out / name)])

    def run(self, words: Sequence[str]) -> None:
        """Run one step of the build; its failure is the kernel's fault unless the host's is known.

        A step of which something was told to end by a signal is run once more: whoever stops a build ends its programs
        before the agent hears of it. If the same happens again, the kernel does it to itself. One that lacked disk,
        memory or processes is run once more while no other build of this host runs: others may have taken them for an
        instant. Lacks it them again, it is no verdict, nor is one of which something was killed twice: systemd-oomd,
        earlyoom and the kernel leave no word with us of whom they killed and why. Nor is a crash that the same step
        does not bring again: memory that is broken lets a compiler crash anywhere. What the build's own limits end is
        told apart before.
        """
        asked, given, began = time.monotonic(), self.deadline, time.time_ns()
        config = self._kept_config()
        try:
            with beside_others(stop=self.stop):
                self.deadline = given + time.monotonic() - asked
                self._step(words, doubt=None)
        except _DoubtfulError as doubt:
            self.tries_again += 1
            if self.tries_again > _MOST_TRIES_AGAIN:
                raise InfrastructureError(f"{doubt}, as did {_MOST_TRIES_AGAIN} before it") from doubt
            self.note(f"tidemark: {doubt}; the step is run once more")
            self._undo(began, config)
            alone = alone_on_host(stop=self.stop, patience=_PATIENCE_SECONDS)
            with alone if isinstance(doubt, _ShortError) else beside_others(stop=self.stop):
                self.deadline = given + time.monotonic() - asked
                self._step(words, doubt=doubt)

    def _kept_config(self) -> Path | None:
        """A copy of .config, or None: steps of the configuration write it anew out of the old one."""
        copy = self.build_log.with_name("config-before")
        try:
            take_file(self.objects, _CONFIG, copy, largest=_LARGEST_CONFIG)
        except KernelError:
            return None
        return copy

    def _undo(self, began: int, config: Path | None) -> None:
        """Remove what a step has written since `began`: there by half, it would be newer than its source."""
        try:
            remove_newer(self.objects, began)
            if config and not (self.objects / _CONFIG).exists():
                put_file(self.objects, _CONFIG, config.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise InfrastructureError(f"the step cannot be run once more: {error}") from error

    def _step(self, words: Sequence[str], *, doubt: _DoubtfulError | None) -> None:
        """Run it; `doubt` is why it is run once more."""
        self.note(f"$ {shlex.join(words)}")
        began, refused, others = self.build_log.stat().st_size, refused_around(), Others()
        done = run(
            self._wrapped(words),
            output=self.build_log,
            append=True,
            timeout=max(0.0, self.deadline - time.monotonic()),
            stop=self.stop,
            environment=self._outer_environment(),
            directory=None if self.job.sandbox else self.objects,
            file_limit=_LARGEST_FILE,
            log_limit=self.job.limits.log_mb * MIB,
            limits=self._limits,
        )
        if self.job.sandbox:
            # A build may take from its own user what the agent needs to look at what it left.
            self.objects.chmod(stat.S_IRWXU)
        if done.is_stuck:
            # It may still write: nothing that it has left can be trusted.
            raise InfrastructureError(f"{words[0]} cannot be killed: it hangs in the kernel")
        if done.timed_out:
            reason = f"not built within {self.job.timeout_seconds:.0f} s"
            if others.took_much(done.cpu_seconds):
                raise InfrastructureError(f"{reason}, while others kept the builder's processors busy")
            raise EndedError(reason)
        if done.over:
            raise InfrastructureError(done.over) if done.over_is_ours else EndedError(done.over)
        log = log_since(self.build_log, began)
        if done.code != 0:
            heed_stop(self.stop)
            self._judge(done, log, began, is_short=says_short(log) or refused_around() > refused, doubt=doubt)
        elif doubt is None and self.tries_again < _MOST_TRIES_AGAIN and says_short(log):
            # A script that goes on may have left something by half.
            raise _ShortError("this step lacked disk, memory or processes, and went on")

    def _judge(self, done: Finished, log: str, began: int, *, is_short: bool, doubt: _DoubtfulError | None) -> NoReturn:
        """Raise what the end of a step means whose log, from byte `began` on, is `log`."""
        failure = failure_of_file(self.build_log, start=began, prefixes=(str(self._source_path), str(self.source)))
        if doubt is None:
            _require_no_doubt(done, log, failure, is_short=is_short)
        self._require_own_end(done.code, log)
        reason = self._reason(failure) or f"exit {done.code}"
        if failure.ending is Ending.KILLED:
            raise KilledError(f"a program of the build was killed twice, not for its own limits: {failure.line}")
        place = place_of(failure, log)
        if says_crashed(log) and not (place and isinstance(doubt, _CrashError) and doubt.place == place):
            raise InfrastructureError(f"a program of the build crashed, but not twice at one place: {reason}; {doubt}")
        if is_short:
            raise InfrastructureError(f"disk, memory or processes were lacking, alone on the host as well: {reason}")
        raise StepError(reason, failure.excerpt)

    def _require_own_end(self, code: int, log: str) -> None:
        """Raise unless the command failed by itself: what starts it and watches it can be killed or fail as well."""
        if code != _FAILED_INSIDE if self.job.sandbox else code >= _BY_SIGNAL or code < 0:
            raise KilledError(f"the step did not end by itself ({code}): {log.strip().rpartition(chr(10))[2][:300]}")

    def _reason(self, failure: Failure) -> str:
        if failure.ending is Ending.COMPILER_CRASH:
            return f"the compiler crashed: {failure.line}"
        return failure.line or read_log(self.build_log).strip().rpartition("\n")[2][:500]

    @property
    def _limits(self) -> Limits:
        wanted = self.job.limits
        return Limits(
            memory_bytes=wanted.memory_mb * MIB,
            processes=wanted.processes,
            cpu_seconds=wanted.cpu_seconds,
            disk_bytes=wanted.disk_mb * MIB,
            directories=(self.objects,),
        )

    @property
    def _source_path(self) -> Path:
        return _INSIDE / "src" if self.job.sandbox else self.source

    @property
    def _objects_path(self) -> Path:
        return _INSIDE / "obj" if self.job.sandbox else self.objects

    @property
    def _ccache_path(self) -> Path:
        return _INSIDE / "ccache" if self.job.sandbox else self.ccache

    def _environment(self) -> dict[str, str]:
        # No CCACHE_BASEDIR: paths that ccache has made relative get into __FILE__, and so into the kernel, but only of
        # those objects that it compiles to keep them. Inside the sandbox all builds have the same paths anyway.
        environment = {
            **_REPRODUCIBLE,
            "CCACHE_DIR": str(self._ccache_path),
            "CCACHE_COMPILERCHECK": "content",
            # The compiler is the driver alone.
            "CCACHE_EXTRAFILES": self.toolchain.assembler,
            # It would not see a header that was added earlier in the include path than the one which it knows.
            "CCACHE_NODIRECT": "1",
            "CCACHE_TEMPDIR": "/tmp" if self.job.sandbox else str(self.ccache / "tmp"),  # noqa: S108
        }
        if not self.keep:
            # What a patch series compiled must not be found by later builds.
            environment |= {"CCACHE_READONLY": "1", "CCACHE_NOSTATS": "1"}
        return environment

    def _outer_environment(self) -> Mapping[str, str]:
        return clean_environment() if self.job.sandbox else clean_environment(self._environment())

    def _wrapped(self, words: Sequence[str]) -> list[str]:
        if not self.job.sandbox:
            return list(words)
        room = Sandbox(
            binds=(
                Bind(self.source, str(self._source_path)),
                Bind(self.objects, str(self._objects_path), writable=True),
                Bind(self.ccache, str(self._ccache_path), writable=self.keep),
            ),
            hidden=(str(self._source_path / ".git"),),
            environment={
                **self._environment(),
                "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
                "HOME": "/tmp",  # noqa: S108 (the sandbox's own)
                "LC_ALL": "C",
            },
            directory=str(self._objects_path),
        )
        return room.wrap(["sh", "-c", _INSIDE_THE_ROOM, "sh", str(self.job.limits.processes), *words])


def _require_no_doubt(done: Finished, log: str, failure: Failure, *, is_short: bool) -> None:
    """Raise _DoubtfulError where somebody else may have made the step fail."""
    if is_short:
        raise _ShortError("this step lacked disk, memory or processes")
    if done.was_told_to_end or says_ended(log):
        raise _DoubtfulError("a program of this step was told to end from outside")
    if says_killed(log):
        raise _DoubtfulError("a program of this step was killed")
    if says_crashed(log):
        raise _CrashError(failure.line, place_of(failure, log))


class Others:
    """What everybody else on this host did with its processors since this object was made."""

    def __init__(self) -> None:
        self._began, self._busy = time.monotonic(), _busy_seconds()

    def took_much(self, own: float) -> bool:
        """Whether so much was taken beside `own` seconds that a build without it could have been in time.

        While processors wait for a disk they are taken, too: a kernel is not to blame for that, whoever keeps it busy.
        """
        all_there_was = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return _busy_seconds() - self._busy - own > _MUCH * all_there_was


def _busy_seconds() -> float:
    """Seconds in which processors of this host worked, or waited for its disks, since it came up."""
    words = _TIMES.read_text(encoding="ascii", errors="replace").partition("\n")[0].split()
    # "cpu", user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
    taken = [int(word) for word in words[1:9]]
    return (sum(taken) - taken[3]) / os.sysconf("SC_CLK_TCK")
