"""What an agent is told to do: the assignment of an attempt, as docs/agent-protocol.md describes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from server.builds.models import Artifact, Build
from server.core.errors import DomainError
from server.lab.models import Attempt, BootState, Machine, Session
from server.sources.mirror import ref_of

BUILD_TIMEOUT_SECONDS = 3600
# An emulated machine has nothing to test before it boots; a server's firmware alone takes minutes.
BOOT_TIMEOUT_SECONDS = {"qemu": 180}
REAL_BOOT_TIMEOUT_SECONDS = 1800


@dataclass(frozen=True)
class CaseOrder:
    """One case for the agent to run in every boot."""

    benchmark: str
    version: str
    case: str
    runs: int
    warmup: int
    timeout_seconds: int
    metrics: tuple[str, ...]


def assignment(attempt: Attempt, cases: Sequence[CaseOrder]) -> dict[str, Any]:
    """The JSON document of a claimed attempt."""
    common = {"key": attempt.key, "trace": attempt.trace, "lease_seconds": settings.LEASE_SECONDS}
    if attempt.build is not None:
        return {"kind": "build", **common, "build": _build(attempt.build)}
    assert attempt.session is not None
    return {"kind": "session", **common, "session": _session(attempt.session, cases)}


def _build(build: Build) -> dict[str, Any]:
    return {
        "id": build.pk,
        "git_url": settings.MIRROR_URL or str(settings.STATE_DIR / "mirror.git"),
        "ref": ref_of(build.revision),
        "commit": build.revision.sha,
        "tree": build.revision.tree.name,
        "arch": build.arch,
        "compiler": build.toolchain.compiler,
        "timeout_seconds": BUILD_TIMEOUT_SECONDS,
        "jobs": settings.LOCAL_SLOTS,
        "sandbox": settings.BUILD_SANDBOX,
        "config": {"name": build.config.name, "base": build.config.base, "fragment": build.config.fragment},
    }


def _session(session: Session, cases: Sequence[CaseOrder]) -> dict[str, Any]:
    machine = session.machine
    return {
        "id": session.pk,
        "machine": machine.name,
        "boot_driver": machine.boot_driver,
        "virtual": machine.virtual,
        "clock": machine.clock,
        "sandbox": settings.BUILD_SANDBOX,
        "options": machine.driver_options,
        "boot_timeout_seconds": _boot_timeout(machine, cases),
        "kernels": {"base": _kernel(session.base_build), "patched": _kernel(session.patched_build)},
        "boots": [
            {"position": boot.position, "arm": boot.arm}
            for boot in session.boots.filter(state__in=[BootState.PLANNED, BootState.RUNNING]).order_by("position")
        ],
        "cases": [
            {
                "benchmark": case.benchmark,
                "version": case.version,
                "case": case.case,
                "runs": case.runs,
                "warmup": case.warmup,
                "timeout_seconds": case.timeout_seconds,
                "metrics": list(case.metrics),
            }
            for case in cases
        ],
    }


def _boot_timeout(machine: Machine, cases: Sequence[CaseOrder]) -> float:
    """The machine's own option, or what is usual for its driver. An option that is no time is a slip, not a wish.

    On a machine that measures itself each case has its own time limit: the boot's is what is left when all use theirs
    up, on each of its core types.
    """
    chosen = machine.driver_options.get("boot_timeout_seconds")
    if isinstance(chosen, int | float) and not isinstance(chosen, bool) and chosen > 0:
        return chosen
    if machine.boot_driver in BOOT_TIMEOUT_SECONDS:
        return BOOT_TIMEOUT_SECONDS[machine.boot_driver]
    return REAL_BOOT_TIMEOUT_SECONDS + max(1, machine.core_types.count()) * sum(case.timeout_seconds for case in cases)


def _kernel(build: Build) -> dict[str, str | None]:
    """What a machine needs to boot this build; `modules` is null for a kernel that has none."""
    files = {file.kind: file.sha256 for file in build.artifacts.all()}
    if Artifact.Kind.IMAGE not in files:
        raise DomainError("artifact-missing", f"{build} has no image", permanent=False)
    return {
        "image": files[Artifact.Kind.IMAGE],
        "modules": files.get(Artifact.Kind.MODULES),
        "build_id": build.build_id,
    }
