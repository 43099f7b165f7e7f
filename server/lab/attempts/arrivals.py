"""An agent arrives on its machine or says hello, and is told what to do, as docs/agent-protocol.md describes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from server.builds.models import Artifact, Build
from server.builds.wanted import cross_prefix, effective_text
from server.core import clock
from server.core.errors import DomainError
from server.core.models import ApiToken
from server.core.reasons import Because
from server.core.tasks import enqueue
from server.lab.attempts.ends import welcome
from server.lab.attempts.life import UNCLAIMED, check_origin, move_attempt
from server.lab.hosts.state import HostHello, follow_attempt
from server.lab.models import (
    Attempt,
    AttemptState,
    BootState,
    Builder,
    Machine,
    PowerCycle,
    Session,
)
from server.lab.port import BY_ITSELF, Origin, dispatcher_of
from server.lab.work import take_deadline, work_of
from server.sources.mirror import ref_of

_NEWS_AGAIN = timedelta(seconds=10)


def arrive(attempt: Attempt, *, agent: str, host: str, origin: Origin = BY_ITSELF) -> bool:
    """Note that the attempt has come to its machine; returns whether it may be taken in by now.

    It may once the machine is kept from all other work. Raises `superseded` when the attempt is over, claimed, or
    came in another build: of two builds of one key the first one wins. Raises `job-edited` for a build that runs
    something else than our script. Repeating it is harmless.
    """
    check_origin(attempt, origin)
    port = dispatcher_of(attempt.adapter)
    with transaction.atomic():
        row = Attempt.objects.select_for_update(of=("self",)).select_related("session__machine").get(pk=attempt.pk)
        if row.state not in UNCLAIMED:
            raise DomainError("superseded", f"{row.key} is {row.state}: {row.reason}")
        port.record_arrival(work_of(row), origin, again=row.arrived_at is not None)
        if row.arrived_at is None:
            _take_in(row, agent, host)
    return port.is_held(work_of(row))


def _take_in(row: Attempt, agent: str, host: str) -> None:
    """Rounds keep its host from other work from now on; the next one is asked for."""
    row.arrived_at, row.host, row.deadline_at = clock.now(), host[:255], take_deadline()
    row.save(update_fields=["arrived_at", "host", "deadline_at"])
    if row.state == AttemptState.SUBMITTING:
        move_attempt(row, AttemptState.QUEUED, Because.ARRIVED(f"arrived with agent {agent[:8]}"))
    else:
        follow_attempt(row)
    enqueue("lab.dispatch")


def take_hello(*, token: ApiToken, hello: HostHello) -> None:
    """A host says that it is there. Who holds no machine's or builder's token has no state to be brought up to date."""
    host: Machine | Builder | None
    if token.scope == ApiToken.Scope.MACHINE:
        host = Machine.objects.filter(name=token.subject).first()
    elif token.scope == ApiToken.Scope.BUILDER:
        host = Builder.objects.filter(name=token.subject).first()
    else:
        return
    if host is None:
        raise DomainError("not-found", f"no {token.scope} {token.subject}")
    before, seen = (host.state, getattr(host, "safe", None)), host.last_seen_at
    welcome(host, hello)
    # Who says hello again and again, and nothing new, costs one round in that time.
    if before != (host.state, getattr(host, "safe", None)) or seen is None or clock.now() - seen > _NEWS_AGAIN:
        enqueue("lab.dispatch")


# A power switch that is asked over a slow management network answers within seconds, or not at all.
POWER_CYCLE_TIMEOUT_SECONDS = 300
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
        return {"kind": "build", **common, "build": _build(attempt.build, attempt.builder)}
    if attempt.power_cycle is not None:
        return {"kind": "power-cycle", **common, "power_cycle": _power_cycle(attempt.power_cycle)}
    assert attempt.session is not None
    return {"kind": "session", **common, "session": _session(attempt.session, cases)}


def _build(build: Build, builder: Builder | None) -> dict[str, Any]:
    config, toolchain = build.config, build.toolchain
    return {
        "id": build.pk,
        "git_url": settings.MIRROR_URL or str(settings.STATE_DIR / "mirror.git"),
        "ref": ref_of(build.revision),
        "commit": build.revision.sha,
        "tree": build.revision.tree.name,
        "arch": build.arch,
        "compiler": toolchain.compiler,
        "family": toolchain.family,
        "cross_compile": cross_prefix(toolchain, build.arch),
        "perf": config.perf,
        "timeout_seconds": settings.BUILD_TIMEOUT_SECONDS,
        "jobs": (builder.jobs if builder else 0) or settings.LOCAL_SLOTS,
        "sandbox": settings.BUILD_SANDBOX,
        "cgroup": settings.BUILD_CGROUP,
        "limits": _limits(),
        "config": {"name": config.name, "base": config.base, "fragment": effective_text(config)},
    }


def _limits() -> dict[str, int]:
    return {
        "memory_mb": settings.BUILD_MEMORY_MB,
        "processes": settings.BUILD_PROCESSES,
        "disk_mb": settings.BUILD_DISK_MB,
        "log_mb": settings.BUILD_LOG_MB,
        "cpu_seconds": settings.BUILD_CPU_SECONDS,
    }


def _power_cycle(power_cycle: PowerCycle) -> dict[str, Any]:
    return {
        "machine": power_cycle.machine.name,
        "node": power_cycle.machine.node_name,
        "reason": power_cycle.reason,
        "timeout_seconds": POWER_CYCLE_TIMEOUT_SECONDS,
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
        "arch": session.base_build.arch,
        "perf": _files(session.base_build).get(Artifact.Kind.PERF),
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
    files = _files(build)
    if Artifact.Kind.IMAGE not in files:
        raise DomainError("artifact-missing", f"{build} has no image", permanent=False)
    return {
        "image": files[Artifact.Kind.IMAGE],
        "modules": files.get(Artifact.Kind.MODULES),
        "build_id": build.build_id,
    }


def _files(build: Build) -> dict[str, str]:
    """Kind to SHA-256 of the files that are there."""
    return {file.kind: file.sha256 for file in build.artifacts.all() if file.removed_at is None}
