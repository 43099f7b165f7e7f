"""Wanting and accepting builds."""

import hashlib
from dataclasses import dataclass
from typing import Any

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from server.builds.models import Artifact, Build, BuildState, KernelConfig, Toolchain
from server.builds.storage import has_artifact
from server.core.errors import DomainError
from server.core.models import Transition
from server.sources.models import Revision, Series, SeriesState, WantedRevision

log = structlog.get_logger(__name__)
_LOG_TAIL_CHARACTERS = 65_536


@dataclass(frozen=True)
class ArtifactFile:
    """A stored file that a build claims as its own."""

    kind: str
    sha256: str
    size: int


@dataclass(frozen=True)
class BuildResult:
    """What a builder reports at the end. `outcome` is built, failed (the kernel's fault) or infrastructure (ours)."""

    outcome: str
    reason: str
    seconds: float
    build_id: str
    compiler_version: str
    log_tail: str
    artifacts: tuple[ArtifactFile, ...]


def want_build(*, revision: Revision, config: KernelConfig, toolchain: Toolchain, trace: str) -> Build:
    """The build of this kernel: the one there is, or a new one. Same source tree hash and recipe, same build.

    One that was given up for reasons of ours is tried again, once for each new cause (`trace`); one that was canceled
    is wanted again.
    """
    with transaction.atomic():
        build, created = Build.objects.get_or_create(
            tree_sha=revision.tree_sha,
            config=config,
            toolchain=toolchain,
            arch=config.arch,
            recipe=recipe_of(config, toolchain),
            defaults={"revision": revision, "state": BuildState.WANTED, "trace": trace},
        )
        if created:
            build.record_creation()
        elif build.state == BuildState.FAILED and build.given_up and not _failed_for(build, trace):
            build.advance(BuildState.WANTED, "wanted again", trace=trace, given_up=False)
        elif build.state == BuildState.CANCELED:
            build.advance(BuildState.WANTED, "wanted again", trace=trace)
    return build


def unwanted_builds() -> QuerySet[Build]:
    """Builds that wait or run for superseded series alone: no living series and no policy wants their source tree."""
    own_tree = OuterRef("tree_sha")
    arms = Q(base__tree_sha=own_tree) | Q(head__tree_sha=own_tree)
    superseded = Series.objects.filter(arms, state=SeriesState.SUPERSEDED)
    living = Series.objects.filter(arms, state=SeriesState.APPLIED)
    chosen = WantedRevision.objects.filter(revision__tree_sha=own_tree)
    return Build.objects.filter(
        Exists(superseded),
        ~Exists(living),
        ~Exists(chosen),
        state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING],
    )


def cancel_unwanted(reason: str) -> int:
    """Cancel the builds that only superseded series wanted; returns how many. Who wants one later wants it again."""
    return sum(build.advance(BuildState.CANCELED, reason) for build in unwanted_builds().order_by("pk"))


def recipe_of(config: KernelConfig, toolchain: Toolchain) -> str:
    """What decides the image besides the source: rows can be edited, a build cannot."""
    parts = (config.base, config.fragment, toolchain.compiler)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _failed_for(build: Build, trace: str) -> bool:
    return Transition.objects.filter(
        subject="build", subject_id=build.pk, trace=trace, after=BuildState.FAILED
    ).exists()


def retire_build(build: Build, reason: str) -> None:
    """Keep the build for the sessions that used it, and let the next one who wants this kernel get a new one."""
    Build.objects.filter(pk=build.pk).update(recipe=f"retired-{build.pk}")
    log.info("build_retired", trace=build.trace, build=build.pk, reason=reason)


def retire_module_builds(reason: str) -> int:
    """Retire all builds that carry benchmark modules: those are of versions that nobody measures with any more."""
    builds = Build.objects.filter(artifacts__kind=Artifact.Kind.MODULES).exclude(recipe__startswith="retired-")
    for build in builds:
        retire_build(build, reason)
    return len(builds)


def record_build(*, build: Build, result: BuildResult) -> bool:
    """Store what a builder reports; False if the build was final already.

    `infrastructure` is not a result: the caller plans the build again. Raises DomainError `artifact-missing` when a
    file was not uploaded first. Runs in the caller's transaction.
    """
    build = Build.objects.select_for_update().get(pk=build.pk)
    if build.state in {BuildState.BUILT, BuildState.FAILED}:
        return False
    for file in result.artifacts:
        if not has_artifact(file.sha256, file.size):
            raise DomainError("artifact-missing", f"{file.kind} {file.sha256[:12]} was not uploaded, or not whole")
    if result.outcome == "built":
        kinds = {file.kind for file in result.artifacts}
        if Artifact.Kind.IMAGE not in kinds or not result.build_id:
            raise DomainError("incomplete-build", "a built kernel has an image and a build id")
    fields: dict[str, Any] = {
        "seconds": result.seconds,
        "compiler_version": result.compiler_version,
        "log_tail": result.log_tail[-_LOG_TAIL_CHARACTERS:],
    }
    with transaction.atomic():
        if result.outcome == "built":
            won = build.advance(BuildState.BUILT, build_id=result.build_id, **fields)
        else:
            won = build.advance(BuildState.FAILED, result.reason or "the kernel does not build", **fields)
        if won:
            for file in result.artifacts:
                Artifact.objects.get_or_create(
                    build=build, kind=file.kind, defaults={"sha256": file.sha256, "size": file.size}
                )
    return won
