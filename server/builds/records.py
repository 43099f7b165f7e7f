"""Storing what a builder reports about a build, and retiring builds that nobody shall get any more."""

from dataclasses import dataclass
from typing import Any

import structlog

from server.builds.models import Artifact, Build, BuildState
from server.builds.storage import artifact_lock, has_artifact
from server.core import clock
from server.core.errors import DomainError
from server.core.reasons import NONE, Because, Reason

log = structlog.get_logger(__name__)
_RETIRED = "retired-"


def retired_name(build: Build) -> str:
    """What stands for the recipe of a retired build, so that no want finds it."""
    return f"{_RETIRED}{build.pk}"


def retire_build(build: Build, reason: str) -> None:
    """Keep the build for the sessions that used it, and let the next one who wants this kernel get a new one."""
    Build.objects.filter(pk=build.pk).update(recipe=retired_name(build))
    log.info("build_retired", trace=build.trace, build=build.pk, reason=reason)


def retire_module_builds(reason: str) -> int:
    """Retire all builds that carry benchmark modules: those are of versions that nobody measures with any more."""
    builds = Build.objects.filter(artifacts__kind=Artifact.Kind.MODULES).exclude(recipe__startswith=_RETIRED)
    for build in builds:
        retire_build(build, reason)
    return len(builds)


# Of a log of gigabytes the artifact `log` keeps head and end; the row keeps what pages show.
_LOG_TAIL_CHARACTERS = 65_536
_FIRST_ERROR_CHARACTERS = 4000


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
    text_hash: str = ""
    kernel_hash: str = ""
    first_error: str = ""


def record_build(*, build: Build, result: BuildResult) -> bool:
    """Store what a builder reports; False if the build was final already.

    `infrastructure` is not a result: the caller plans the build again. Raises DomainError `artifact-missing` when a
    file was not uploaded first, `incomplete-build` for a kernel without image or build id. Runs in the caller's
    transaction. A kernel that was built before and now comes out as another one becomes a build of its own
    (docs/decisions/0016-a-build-is-one-kernel.md).
    """
    _check(result)
    # The locks of the files are taken before the row's: so does whoever removes files.
    with artifact_lock(*(file.sha256 for file in result.artifacts)):
        build = Build.objects.select_for_update(of=("self",)).get(pk=build.pk)
        if build.state in {BuildState.BUILT, BuildState.FAILED} or not _is_welcome(build, result):
            return False
        for file in result.artifacts:
            if not has_artifact(file.sha256, file.size):
                raise DomainError("artifact-missing", f"{file.kind} {file.sha256[:12]} was not uploaded, or not whole")
        return _store(build, result)


def _check(result: BuildResult) -> None:
    kinds = [file.kind for file in result.artifacts]
    if len(kinds) != len(set(kinds)):
        raise DomainError("incomplete-build", "a build has one file of each kind")
    if result.outcome == "built" and (Artifact.Kind.IMAGE not in kinds or not result.build_id):
        raise DomainError("incomplete-build", "a built kernel has an image and a build id")


def _is_welcome(build: Build, result: BuildResult) -> bool:
    """A result that comes late may bring an expired kernel back; anything else is nothing that anybody waits for."""
    return build.state != BuildState.EXPIRED or (result.outcome == "built" and result.build_id == build.build_id)


def _store(build: Build, result: BuildResult) -> bool:
    fields: dict[str, Any] = {
        "seconds": result.seconds,
        "compiler_version": result.compiler_version,
        "log_tail": result.log_tail[-_LOG_TAIL_CHARACTERS:],
        "first_error": result.first_error[:_FIRST_ERROR_CHARACTERS],
    }
    if result.outcome != "built":
        reason = result.reason or "the kernel does not build"
        if build.build_id:
            reason = f"it was built before and does not build again: {reason}"
        won = build.advance(BuildState.FAILED, Because.DOES_NOT_BUILD(reason), **fields)
    elif build.build_id not in {"", result.build_id}:
        return _store_another(build, result, fields)
    else:
        won = build.advance(BuildState.BUILT, _told(build, result), **fields, **_identity(build, result))
    if won:
        _keep_files(build, result)
    return won


def _identity(build: Build, result: BuildResult) -> dict[str, Any]:
    # An older agent tells no hashes: what is known of the same kernel stays.
    return {
        "build_id": result.build_id,
        "text_hash": result.text_hash or build.text_hash,
        "kernel_hash": result.kernel_hash or build.kernel_hash,
        "used_at": clock.now(),
    }


def _told(build: Build, result: BuildResult) -> Reason:
    if not build.build_id:
        return NONE
    if build.text_hash and result.text_hash and build.text_hash != result.text_hash:
        # Impossible for one build id, unless agents hash the text in another way now.
        log.error("text_hash_changed", trace=build.trace, build=build.pk, build_id=build.build_id)
        return Because.BUILT_AGAIN("built again: the same build id, but its text hash is told in another way")
    return Because.BUILT_AGAIN("built again: the same kernel")


def _store_another(build: Build, result: BuildResult, fields: dict[str, Any]) -> bool:
    """The same sources and recipe gave another kernel. The old row keeps its name for what was measured with it."""
    different = f"build id {result.build_id} instead of {build.build_id}"
    if result.compiler_version != build.compiler_version:
        different += f", by {result.compiler_version} instead of {build.compiler_version}"
    code = "the same text" if result.text_hash and result.text_hash == build.text_hash else "not the same text"
    reason = f"NOT REPRODUCED: built again, another kernel came out ({different}; {code})"
    key = {name: getattr(build, name) for name in ("tree_sha", "config", "toolchain", "arch", "recipe")}
    if not build.advance(BuildState.EXPIRED, Because.NOT_REPRODUCED(reason), recipe=retired_name(build)):
        return False
    log.error("build_not_reproduced", trace=build.trace, build=build.pk, reason=reason)
    other = Build.objects.create(
        **key,
        **fields,
        revision=build.revision,
        trace=build.trace,
        state=BuildState.BUILT,
        **Because.NOT_REPRODUCED(f"came out when build {build.pk} was built again").columns(),
        build_id=result.build_id,
        text_hash=result.text_hash,
        kernel_hash=result.kernel_hash,
        used_at=clock.now(),
    ).record_creation()
    _keep_files(other, result)
    return True


def _keep_files(build: Build, result: BuildResult) -> None:
    """Rows of the files. Those of a kernel built again replace what was removed; the caller holds the files' locks."""
    moment = clock.now()
    for file in result.artifacts:
        Artifact.objects.update_or_create(
            build=build,
            kind=file.kind,
            defaults={
                "sha256": file.sha256,
                "size": file.size,
                "removed_at": None,
                "removal": "",
                "checked_at": moment,
            },
        )
