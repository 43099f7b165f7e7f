"""The archive of modules for the testbed's kernels, made by the agent's own builder.

All kernels of one release take it: they differ in a few lines of code, not in what they have for modules.
"""

import hashlib
import tarfile
import threading
import time
from pathlib import Path

from tidemark_agent.benchmarks.bundle import Benchmark, benchmark_names, find_benchmark
from tidemark_agent.build.maker import Maker, toolchain_of
from tidemark_agent.build.modules import ModuleArchive
from tidemark_agent.wire.assignment import BuildJob

from tests.testbed.kernels import BASE, built_tree, kernel
from tests.testbed.paths import CACHE
from tests.testbed.system import only_writer

_SECONDS = 300.0


def module_archive() -> Path:
    """The archive for the base kernel and the benchmarks as they are now; made once for each state of both."""
    folder = CACHE / "modules"
    name = f"{kernel(BASE).folder.name}-{_versions()}.tar.gz"
    with only_writer(folder):
        if not (folder / name).exists():
            for old in folder.glob("*.tar.gz"):
                old.unlink()
            with built_tree() as (source, objects):
                part = folder / "part"
                make_archive(source, objects, scratch=folder, target=part)
            part.replace(folder / name)
    return folder / name


def benchmark_modules(archive: Path) -> dict[str, bytes]:
    """The benchmarks' modules in an archive, by their names in it."""
    with tarfile.open(archive) as tar:
        found = {member.name: tar.extractfile(member) for member in tar if member.name.startswith("tidemark/")}
        return {name: file.read() for name, file in found.items() if file is not None}


def make_archive(source: Path, objects: Path, *, scratch: Path, target: Path) -> None:
    """What the builder does for the kernel in `objects`, outside of its sandbox; the log is `scratch`/log."""
    job = BuildJob(
        git_url="", ref="", commit="", tree="testbed", arch="x86_64", compiler="gcc", timeout_seconds=_SECONDS,
        jobs=2, sandbox=False, needs_cgroup=False, config_name="testbed", config_base="allnoconfig", fragment="",
    )  # fmt: skip
    maker = Maker(
        job=job, toolchain=toolchain_of(job), source=source, objects=objects, ccache=CACHE.parent / "ccache",
        keep=True, build_log=scratch / "log",
        deadline=time.monotonic() + _SECONDS, stop=threading.Event(),
    )  # fmt: skip
    ModuleArchive(maker=maker, scratch=scratch).write(target)


def module_benchmarks() -> list[Benchmark]:
    """Those benchmarks that are kernel modules."""
    return [found for found in map(find_benchmark, benchmark_names()) if found.program.kind == "module"]


def _versions() -> str:
    text = "\0".join(f"{benchmark.name} {benchmark.version}" for benchmark in module_benchmarks())
    return hashlib.sha256(text.encode()).hexdigest()[:16]
