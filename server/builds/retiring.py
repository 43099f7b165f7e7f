"""Builds that nobody shall get any more: the next one who wants such a kernel gets a new one."""

import structlog

from server.builds.models import Artifact, Build

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
