"""Running make on a kernel tree, inside the sandbox or, where the operator chose so, outside."""

import os
import shlex
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.assignment import BuildJob
from tidemark_agent.build.failure import (
    Ending,
    Failure,
    failure_of_file,
    log_since,
    read_log,
    says_disk_full,
    says_ended,
    says_killed,
    says_no_processes,
)
from tidemark_agent.build.objects import remove_newer
from tidemark_agent.build.toolchain import Toolchain
from tidemark_agent.disk import is_nearly_full
from tidemark_agent.errors import InfrastructureError, KernelError, KilledError
from tidemark_agent.limits import MIB, Limits, require_memory_group
from tidemark_agent.process import Finished, capture, clean_environment, heed_stop, run
from tidemark_agent.sandbox import Bind, Sandbox, require_sandbox

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
_COUNTERS = Path("/proc/vmstat")
_TIMES = Path("/proc/stat")
# Of all processors. Below this a build that was too slow was too slow by itself.
_MUCH = 0.25


class StepError(KernelError):
    """A step of the build failed by the kernel's fault; `excerpt` is the first error with the lines around it."""

    def __init__(self, reason: str, excerpt: str) -> None:
        super().__init__(reason)
        self.excerpt = excerpt


class EndedError(KernelError):
    """A step was killed for what it took, time or anything else: it may have left half an object."""


class _DoubtfulError(Exception):
    """A step failed in a way in which others on this host may have made it fail; once more will show it."""


@dataclass(frozen=True)
class Maker:
    """Makes targets of one checkout into one object directory."""

    job: BuildJob
    toolchain: Toolchain
    source: Path
    objects: Path
    ccache: Path
    keep: bool
    build_log: Path
    deadline: float
    stop: threading.Event

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
        before the agent hears of it. So is one that met a full disk: whoever filled it may be gone by now. If the same
        happens again, the kernel does it to itself. One of which something was killed is run once more, too, but never
        becomes a verdict: systemd-oomd, earlyoom and the kernel leave no word with us of whom they killed and why. What
        the build's own limits end is told apart before.
        """
        began = time.time_ns()
        try:
            self._step(words, is_again=False)
        except _DoubtfulError as doubt:
            self.note(f"tidemark: {doubt}; the step is run once more")
            try:
                # What met the full disk may be there by half, and newer than its source.
                remove_newer(self.objects, began)
            except OSError as error:
                raise InfrastructureError(f"the step cannot be run once more: {error}") from error
            self._step(words, is_again=True)

    def _step(self, words: Sequence[str], *, is_again: bool) -> None:
        self.note(f"$ {shlex.join(words)}")
        began, oom_kills, others = self.build_log.stat().st_size, _oom_kills(), Others()
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
        if done.code == 0:
            return
        heed_stop(self.stop)
        log = log_since(self.build_log, began)
        if not is_again:
            _require_no_doubt(done, log)
        self._require_own_end(done.code, log)
        failure = failure_of_file(self.build_log, start=began, prefixes=(str(self._source_path), str(self.source)))
        self._blame_host(failure, oom_kills=_oom_kills() - oom_kills)
        raise StepError(self._reason(failure) or f"exit {done.code}", failure.excerpt)

    def _require_own_end(self, code: int, log: str) -> None:
        """Raise unless the command failed by itself: what starts it and watches it can be killed or fail as well."""
        if code != _FAILED_INSIDE if self.job.sandbox else code >= _BY_SIGNAL or code < 0:
            raise KilledError(f"the step did not end by itself ({code}): {log.strip().rpartition(chr(10))[2][:300]}")
        if says_no_processes(log):
            raise KilledError("the builder had no processes left for this step")

    def _blame_host(self, failure: Failure, *, oom_kills: int) -> None:
        """Raise InfrastructureError where the host is at fault. The log's text alone does not count: a patch has it."""
        if says_disk_full(read_log(self.build_log)) and is_nearly_full(self.objects):
            raise InfrastructureError("no disk space left for the build")
        if failure.ending is Ending.KILLED:
            raise KilledError(f"a program of the build was killed twice, not for its own limits: {failure.line}")
        if failure.ending is Ending.NO_MEMORY and oom_kills > 0:
            raise InfrastructureError(f"the builder ran out of memory: {failure.line}")

    def _reason(self, failure: Failure) -> str:
        if failure.ending is Ending.COMPILER_CRASH:
            return f"the compiler crashed: {failure.line}"
        if failure.ending is Ending.NO_MEMORY:
            return f"a program of the build got no memory: {failure.line}"
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


def _require_no_doubt(done: Finished, log: str) -> None:
    """Raise _DoubtfulError where somebody else may have made the step fail."""
    if done.was_told_to_end or says_ended(log):
        raise _DoubtfulError("a program of this step was told to end from outside")
    if says_killed(log):
        raise _DoubtfulError("a program of this step was killed")
    if says_disk_full(log):
        raise _DoubtfulError("this step met a full disk")


class Others:
    """What everybody else on this host did with its processors since this object was made."""

    def __init__(self) -> None:
        self._began, self._busy = time.monotonic(), _busy_seconds()

    def took_much(self, own: float) -> bool:
        """Whether so much was taken beside `own` seconds that a build without it could have been in time."""
        all_there_was = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return _busy_seconds() - self._busy - own > _MUCH * all_there_was


def _busy_seconds() -> float:
    """Seconds of CPU that all processes of this host have taken since it came up."""
    words = _TIMES.read_text(encoding="ascii", errors="replace").partition("\n")[0].split()
    # "cpu", user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
    taken = [int(word) for word in words[1:9]]
    return (sum(taken) - sum(taken[3:5])) / os.sysconf("SC_CLK_TCK")


def _oom_kills() -> int:
    """How many processes this host has killed for want of memory since it came up; 0 where it does not say."""
    try:
        lines = _COUNTERS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
