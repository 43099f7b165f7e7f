"""Wanting builds, and what other rooms do with them."""

from django.db import transaction

from server.builds.canceling import cancel_edited, cancel_unwanted, is_present, unwanted_builds
from server.builds.models import Build, BuildState, KernelConfig, Toolchain
from server.builds.recipes import recipe_of
from server.builds.recording import ArtifactFile, BuildResult, record_build
from server.builds.retiring import retire_build, retire_module_builds
from server.builds.selectors import is_fresh, touch_builds
from server.core import clock
from server.core.models import Transition
from server.sources.models import Revision

__all__ = [
    "ArtifactFile",
    "BuildResult",
    "cancel_edited",
    "cancel_unwanted",
    "is_present",
    "recipe_of",
    "record_build",
    "retire_build",
    "retire_module_builds",
    "unwanted_builds",
    "wake_build",
    "want_build",
]


def want_build(*, revision: Revision, config: KernelConfig, toolchain: Toolchain, trace: str) -> Build:
    """The build of this kernel: the one there is, or a new one. Same source tree hash and recipe, same build.

    One that was given up for reasons of ours is tried again, once for each new cause (`trace`); one that was canceled,
    or whose files were removed, is wanted again. Raises DomainError `bad-config` for a configuration that makes no
    sense.
    """
    with transaction.atomic():
        build, created = Build.objects.get_or_create(
            tree_sha=revision.tree_sha,
            config=config,
            toolchain=toolchain,
            arch=config.arch,
            recipe=recipe_of(config, toolchain),
            defaults={"revision": revision, "state": BuildState.WANTED, "trace": trace, "used_at": clock.now()},
        )
        if created:
            build.record_creation()
            return build
        if not is_fresh(build):
            touch_builds([build.pk])
        if build.state == BuildState.FAILED and build.given_up and not _failed_for(build, trace):
            build.advance(BuildState.WANTED, "wanted again", trace=trace, given_up=False)
        elif build.state in {BuildState.CANCELED, BuildState.EXPIRED}:
            wake_build(build, trace)
    return build


def wake_build(build: Build, trace: str) -> bool:
    """Have a build that was canceled, or whose files were removed, made again. It is to come out as the same kernel."""
    removed = build.state == BuildState.EXPIRED
    reason = "wanted again: its files were removed" if removed else "wanted again"
    return build.advance(BuildState.WANTED, reason, trace=trace, used_at=clock.now())


def _failed_for(build: Build, trace: str) -> bool:
    return Transition.objects.filter(
        subject="build", subject_id=build.pk, trace=trace, after=BuildState.FAILED
    ).exists()
