"""Building one revision with the agent's own builder, and what that cost."""

import io
import os
import resource
import shutil
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidemark_agent.assignment import BuildJob
from tidemark_agent.build.kernel import KernelBuilder
from tidemark_agent.log import Log

from bench.builds_patches import TREE, Revision

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
