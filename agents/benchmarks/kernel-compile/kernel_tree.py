"""A kernel source tree that is compiled as a load: unpacked once, compiled anew for each run."""

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# The same source then compiles to the same bytes, which is the same work.
_FIXED = {
    "KBUILD_BUILD_TIMESTAMP": "2026-01-01 00:00:00 UTC",
    "KBUILD_BUILD_USER": "tidemark",
    "KBUILD_BUILD_HOST": "tidemark",
    "KBUILD_BUILD_VERSION": "1",
}
_TAIL_BYTES = 2000


class CompileError(Exception):
    """Unpacking, configuring or compiling did not work; says which and what was printed."""


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of CPU time in user space and in the kernel, of one compilation."""

    real: float
    user: float
    system: float


@dataclass(frozen=True)
class Tree:
    """Source in `source`, objects in `objects`, which is emptied before each compilation."""

    source: Path
    objects: Path
    config: str
    target: str
    jobs: int

    def prepare(self) -> None:
        """Empty the objects, configure, and let the disk come to rest; none of it belongs to the compilation."""
        shutil.rmtree(self.objects, ignore_errors=True)
        self.objects.mkdir(parents=True)
        self._make(self.config)
        os.sync()

    def compile(self) -> Spent:
        """Compile the target; raises CompileError with the end of what was printed."""
        spent = self._make(f"-j{self.jobs}", self.target)
        if self.target == "vmlinux" and not (self.objects / "vmlinux").is_file():
            raise CompileError("make made no vmlinux")
        return spent

    def _make(self, *words: str) -> Spent:
        command = ["make", "-s", "-C", str(self.source), f"O={self.objects}", *words]
        return run(command, self.objects.parent / "make.log")


def unpacked(archive: Path, kept: Path) -> Path:
    """The tree in `archive`, unpacked below `kept` once; its single top folder is left out of the paths."""
    source, partial = kept / "source", kept / "source.partial"
    if not source.is_dir():
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        run(["tar", "-xf", str(archive), "-C", str(partial), "--strip-components=1"], kept / "tar.log")
        if not (partial / "Makefile").is_file():
            raise CompileError(f"{archive} holds no kernel source")
        partial.rename(source)
        os.sync()
    return source


def run(command: list[str], log: Path) -> Spent:
    """Run to the end; what all its children used counts too."""
    with log.open("wb") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **_FIXED}
        )
        _, status, usage = os.wait4(process.pid, 0)
        real = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        said = log.read_bytes()[-_TAIL_BYTES:].decode("utf-8", errors="replace").strip()
        raise CompileError(f"{command[0]} ended with {process.returncode}: {said}")
    return Spent(real, usage.ru_utime, usage.ru_stime)
