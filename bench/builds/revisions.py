"""Revisions of a small series, built with the agent's own builder, booted, and what that cost."""

import hashlib
import io
import os
import resource
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from tidemark_agent.benchmarks.bundle import compiled_program, find_benchmark, static_program
from tidemark_agent.boot.qemu import COUNTED_KHZ, INIT_SOURCE, QemuDriver, build_initramfs
from tidemark_agent.build.kernel import KernelBuilder
from tidemark_agent.log import Log
from tidemark_agent.wire.assignment import BuildJob, KernelImage, PlannedCase

from demo.processes import git

TREE = "debian"
BASE_REF = f"refs/tidemark/trees/{TREE}/linux-6.1.y"
_SERIES_REF = "refs/tidemark/series/1/"
_DATE = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
_ALLOCATE = "\tpage = alloc_zeroed_user_highpage_movable(vma, vmf->address);\n\tif (!page)\n\t\tgoto oom;\n"
_TWICE = "\tclear_user_highpage(page, vmf->address);\n"
_HELPER = """static inline void clear_again(struct page *page, unsigned long address)
{
	clear_user_highpage(page, address);
}

/* The GFP flags allowed during early boot */
"""


@dataclass(frozen=True)
class Edit:
    """In `file`, the first place that reads `old` shall read `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Patch:
    """`changes_code` is whether compilers make other instructions of it: comments and inlined helpers do not."""

    title: str
    edits: tuple[Edit, ...]
    changes_code: bool = True

    @property
    def is_one_file(self) -> bool:
        return len(self.edits) == 1 and self.edits[0].file.endswith(".c")


PATCHES = (
    Patch(
        "mm/memory.c, a comment only",
        (Edit("mm/memory.c", _ALLOCATE, "\t/* What a fault costs is mostly this. */\n" + _ALLOCATE),),
        changes_code=False,
    ),
    Patch("mm/memory.c, clear twice", (Edit("mm/memory.c", _ALLOCATE, _ALLOCATE + _TWICE),)),
    Patch("fs/pipe.c, four buffers", (Edit("fs/pipe.c", "DEF_BUFFERS 2\n", "DEF_BUFFERS 4\n"),)),
    Patch(
        "mm/mmap.c and kernel/fork.c",
        (
            Edit("mm/mmap.c", "\nint mmap_rnd_bits", "\nint tidemark_maps __read_mostly = 1;\nint mmap_rnd_bits"),
            Edit("kernel/fork.c", "#define MAX_THREADS FUTEX_TID_MASK", "#define MAX_THREADS (FUTEX_TID_MASK / 2)"),
        ),
    ),
    Patch(
        "mm/internal.h, which all of mm/ includes",
        (
            Edit("mm/internal.h", "/* The GFP flags allowed during early boot */\n", _HELPER),
            Edit("mm/memory.c", _TWICE, "\tclear_again(page, vmf->address);\n"),
        ),
        changes_code=False,
    ),
)


@dataclass(frozen=True)
class Revision:
    """One commit to build, and the ref by which the agent fetches it. `patch` is the last one in it; None: the base."""

    prefix: int
    commit: str
    ref: str
    patch: Patch | None


def series_of(source: Path, head: str, repository: Path, patches: Sequence[Patch] = PATCHES) -> list[Revision]:
    """The base and all prefixes of the series, in a bare repository that borrows the objects of `source`."""
    git(repository.parent, "init", "-q", "--bare", str(repository))
    (repository / "objects/info/alternates").write_text(f"{(source / 'objects').resolve()}\n")
    git(repository, "update-ref", BASE_REF, head)
    found = [Revision(0, head, BASE_REF, None)]
    for number, patch in enumerate(patches, start=1):
        commit = _commit(repository, found[-1].commit, patch)
        ref = f"{_SERIES_REF}{number}"
        git(repository, "update-ref", ref, commit)
        found.append(Revision(number, commit, ref, patch))
    return found


def _commit(repository: Path, parent: str, patch: Patch) -> str:
    index = {"GIT_INDEX_FILE": str(repository / "index.scratch"), **_DATE}
    git(repository, "read-tree", parent, env=index)
    for edit in patch.edits:
        text = git(repository, "show", f"{parent}:{edit.file}") + "\n"
        if edit.old not in text:
            raise ValueError(f"{edit.file} does not have {edit.old!r}")
        blob = git(repository, "hash-object", "-w", "--stdin", stdin=text.replace(edit.old, edit.new, 1).encode())
        git(repository, "update-index", "--cacheinfo", f"100644,{blob},{edit.file}", env=index)
    tree = git(repository, "write-tree", env=index)
    return git(repository, "commit-tree", tree, "-p", parent, "-m", patch.title, env=index)


_SECONDS: Final = 7200.0


@dataclass(frozen=True)
class Target:
    """A way to build: `options` are the fields of a job that differ from a plain build with gcc."""

    name: str
    job: BuildJob


@dataclass(frozen=True)
class Built:
    """One build; wall and CPU time in seconds, the image copied out."""

    target: str
    prefix: int
    wall: float
    cpu: float
    build_id: str
    text_hash: str
    compiler: str
    image: Path
    has_perf: bool


class BuildError(Exception):
    """A kernel that should be built was not."""


def target(name: str, fragment: Path, repository: Path, *, arch: str, family: str = "gcc", cross: str = "") -> Target:
    job = BuildJob(
        git_url=str(repository),
        ref="",
        commit="",
        tree=TREE,
        arch=arch,
        compiler=family,
        timeout_seconds=_SECONDS,
        jobs=os.cpu_count() or 1,
        sandbox=shutil.which("bwrap") is not None,
        needs_cgroup=False,
        config_name=name,
        config_base="allnoconfig",
        fragment=fragment.read_text(encoding="utf-8"),
        family=family,
        cross_compile=cross,
    )
    return Target(name, job)


def build(wanted: Target, revision: Revision, folder: Path, *, perf: bool = False) -> Built:
    """Build in `folder`, whose objects and compiler cache serve the next build there; raises BuildError."""
    log = Log(io.StringIO())
    job = replace(wanted.job, ref=revision.ref, commit=revision.commit, perf=perf)
    builder = KernelBuilder(
        job=job,
        work=folder / "work",
        ccache=folder / "ccache",
        log=log,
        stop=threading.Event(),
        progress=lambda _: None,
    )
    began, used = time.monotonic(), _cpu_seconds()
    with builder.built() as outcome:
        wall, cpu = time.monotonic() - began, _cpu_seconds() - used
        if outcome.outcome != "built":
            raise BuildError(f"{wanted.name}, prefix {revision.prefix}: {outcome.reason}\n{outcome.first_error}")
        image = folder / f"image-{wanted.name}-{revision.prefix}"
        shutil.copyfile(outcome.files["image"], image)
    return Built(
        wanted.name, revision.prefix, wall, cpu, outcome.build_id, outcome.text_hash, outcome.compiler_version, image,
        has_perf="perf" in outcome.files,
    )  # fmt: skip


def _cpu_seconds() -> float:
    """Of all programs that this process has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


_BENCHMARK, _CASE = "mm-basic", "fault-4k"
CPUS: Final[Mapping[str, str]] = {"x86_64": "Nehalem", "arm64": "cortex-a72"}
_BOOT_SECONDS = 600.0


@dataclass(frozen=True)
class Booted:
    """`outcome` and `reason` are the driver's; `nanoseconds` is what the case took per fault."""

    outcome: str
    reason: str
    seconds: float
    nanoseconds: float | None
    console: str


def boot(image: Path, build_id: str, arch: str, folder: Path) -> Booted:
    """One boot in which instructions are counted, so that the figures do not depend on what else this host does."""
    work = folder / "boot"
    work.mkdir(parents=True, exist_ok=True)
    sha256 = hashlib.sha256(image.read_bytes()).hexdigest()
    case = _planned_case()
    driver = QemuDriver(
        arch=arch,
        options={"cpu": CPUS[arch]},
        clock="instructions",
        sandbox=False,
        timeout_seconds=_BOOT_SECONDS,
        image={sha256: image},
        initramfs=_initramfs(case, arch, work),
        tsc_khz=COUNTED_KHZ if arch == "x86_64" else None,
        work=work,
        log=Log(io.StringIO()),
        stop=threading.Event(),
    )
    began = time.monotonic()
    outcome = driver.boot(KernelImage(image=sha256, build_id=build_id), [case])
    values = [value for measured in outcome.measurements for value in measured.values[measured.warmup :]]
    return Booted(
        outcome.outcome,
        outcome.reason,
        time.monotonic() - began,
        median(values) if values else None,
        outcome.console_tail,
    )


def _planned_case() -> PlannedCase:
    version = find_benchmark(_BENCHMARK).version
    return PlannedCase(_BENCHMARK, version, _CASE, runs=3, warmup=1, timeout_seconds=300, metrics=("time",))


def _initramfs(case: PlannedCase, arch: str, work: Path) -> Path:
    stop = threading.Event()
    program = compiled_program(find_benchmark(_BENCHMARK), cache=work, stop=stop, arch=arch)
    init = static_program(INIT_SOURCE, arch=arch, cache=work, stop=stop)
    path = work / "initramfs"
    path.write_bytes(build_initramfs([case], {_BENCHMARK: program}, init=init))
    return path
