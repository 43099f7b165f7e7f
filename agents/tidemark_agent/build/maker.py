"""Running make on a kernel tree, inside the sandbox or, where the operator chose so, outside."""

import os
import shlex
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_agent.assignment import BuildJob
from tidemark_agent.build.failure import first_error, read_log, says_disk_full
from tidemark_agent.disk import is_nearly_full
from tidemark_agent.errors import InfrastructureError, KernelError
from tidemark_agent.process import capture, clean_environment, run
from tidemark_agent.sandbox import Bind, Sandbox

# Fixed, so that the same source gives the same bits: no clock, user, host or counter gets into the image.
_REPRODUCIBLE = {
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01",
    "KBUILD_BUILD_USER": "tidemark",
    "KBUILD_BUILD_HOST": "tidemark",
    "KBUILD_BUILD_VERSION": "1",
}
_LARGEST_FILE = 4 * 1024**3
_INSIDE = Path("/build")


@dataclass(frozen=True)
class Maker:
    """Makes targets of one checkout into one object directory."""

    job: BuildJob
    source: Path
    objects: Path
    ccache: Path
    keep: bool
    build_log: Path
    deadline: float
    stop: threading.Event

    def compiler_version(self) -> str:
        """The first line of the compiler's --version; also proves that compiler and sandbox work at all."""
        words = [self.job.compiler, "--version"]
        text = capture(
            self._wrapped(words),
            scratch=self.build_log.parent,
            timeout=60,
            stop=self.stop,
            environment=self._outer_environment(),
        )
        return text.partition("\n")[0].strip()[:200]

    def make(self, *targets: str) -> None:
        words = ["make", "-s", "--no-print-directory", f"-j{self.job.jobs}", "-C", str(self._source_path)]
        words += [f"O={self._objects_path}", f"ARCH={self.job.arch}", f"CC={self._compiler()}", "LOCALVERSION="]
        self.run([*words, *targets])

    def inside(self, name: str) -> str:
        """Where a path of the object directory is for the commands that are run."""
        return str(self._objects_path / name)

    @property
    def is_late(self) -> bool:
        """Whether the time for this build is over."""
        return time.monotonic() >= self.deadline

    def note(self, line: str) -> None:
        """Write a line of our own into the build log."""
        with self.build_log.open("a", encoding="utf-8") as log_file:
            print(line, file=log_file)

    def merge_fragment(self, name: str) -> None:
        script = self._source_path / "scripts" / "kconfig" / "merge_config.sh"
        out = self._objects_path
        self.run([str(script), "-m", "-O", str(out), str(out / ".config"), str(out / name)])

    def run(self, words: Sequence[str]) -> None:
        """Run one step of the build; its failure is the kernel's fault unless the disk is full."""
        self.note(f"$ {shlex.join(words)}")
        done = run(
            self._wrapped(words),
            output=self.build_log,
            append=True,
            timeout=max(0.0, self.deadline - time.monotonic()),
            stop=self.stop,
            environment=self._outer_environment(),
            directory=None if self.job.sandbox else self.objects,
            file_limit=_LARGEST_FILE,
        )
        if done.timed_out:
            raise KernelError(f"not built within {self.job.timeout_seconds:.0f} s")
        if done.code == 0:
            return
        log = read_log(self.build_log)
        # The text alone does not count: it could be the patch's own.
        if says_disk_full(log) and is_nearly_full(self.objects):
            raise InfrastructureError("no disk space left for the build")
        last = log.strip().rpartition("\n")[2]
        raise KernelError(first_error(log, prefixes=(str(self._source_path),)) or last[:500] or f"exit {done.code}")

    @property
    def _source_path(self) -> Path:
        return _INSIDE / "src" if self.job.sandbox else self.source

    @property
    def _objects_path(self) -> Path:
        return _INSIDE / "obj" if self.job.sandbox else self.objects

    @property
    def _ccache_path(self) -> Path:
        return _INSIDE / "ccache" if self.job.sandbox else self.ccache

    def _compiler(self) -> str:
        return f"ccache {self.job.compiler}" if shutil.which("ccache") else self.job.compiler

    def _environment(self) -> dict[str, str]:
        environment = {
            **_REPRODUCIBLE,
            "CCACHE_DIR": str(self._ccache_path),
            "CCACHE_BASEDIR": str(self._objects_path.parent),
            "CCACHE_COMPILERCHECK": "content",
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
        return room.wrap(words)
