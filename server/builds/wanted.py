"""Which kernels are wanted, by which recipe, and canceling those that nobody wants any more."""

import hashlib
from collections.abc import Collection
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from server.builds.models import (
    Build,
    BuildState,
    ConfigFragment,
    KernelConfig,
    Overruled,
    Part,
    Toolchain,
    merged,
    overruled,
)
from server.core import clock
from server.core.errors import DomainError
from server.core.models import Transition
from server.core.reasons import Because, Reason
from server.sources.models import Revision, Series, SeriesState, WantedRevision

# Written once an hour at most: what is read every few seconds need not be written as often.
USE_GRAIN = timedelta(hours=1)


def is_fresh(build: Build) -> bool:
    """Whether its use was noted within the hour, as this object was read."""
    return build.used_at is not None and build.used_at > clock.now() - USE_GRAIN


def touch_builds(ids: Collection[int]) -> int:
    """Note that these builds were used now, so that their files stay; returns how many rows were written."""
    moment = clock.now()
    stale = Q(used_at=None) | Q(used_at__lt=moment - USE_GRAIN)
    return Build.objects.filter(stale, pk__in=ids).update(used_at=moment)


def same_code_as(build: Build, limit: int | None = None) -> list[Build]:
    """Other kernels with the same text, newest first; none where the text hash is not known."""
    if not build.text_hash:
        return []
    others = Build.objects.filter(text_hash=build.text_hash, arch=build.arch).exclude(pk=build.pk)
    named = others.select_related("revision", "config", "toolchain").order_by(F("id").desc())
    return list(named.defer("log_tail", "first_error", "config__fragment")[:limit])


def effective_text(config: KernelConfig) -> str:
    """All CONFIG_ lines of this configuration: shared fragments in their order, its own last; the later line counts.

    Raises DomainError `bad-config` when it names a fragment that is not there or is for another architecture, or when a
    text has a line that is none.
    """
    try:
        return merged(config_parts(config))
    except ValueError as error:
        raise DomainError("bad-config", f"configuration {config.name}: {error}") from error


def config_parts(config: KernelConfig) -> list[Part]:
    """The texts of a configuration in the order in which they are merged. Raises DomainError `bad-config`."""
    if not config.fragments:
        return [Part(config.name, config.fragment)]
    rows = {row.name: row for row in ConfigFragment.objects.filter(name__in=config.fragments)}
    parts = []
    for name in config.fragments:
        row = rows.get(name)
        if row is None:
            raise DomainError("bad-config", f"configuration {config.name}: there is no fragment {name}")
        if row.arch not in {"", config.arch}:
            wrong = f"fragment {name} is for {row.arch}, not for {config.arch}"
            raise DomainError("bad-config", f"configuration {config.name}: {wrong}")
        parts.append(Part(f"fragment {name}", row.lines))
    return [*parts, Part(f"configuration {config.name}", config.fragment)]


def contradictions(config: KernelConfig) -> list[Overruled]:
    """Symbols that parts of this configuration set differently. Raises DomainError `bad-config`."""
    try:
        return overruled(config_parts(config))
    except ValueError as error:
        raise DomainError("bad-config", f"configuration {config.name}: {error}") from error


def cross_prefix(toolchain: Toolchain, arch: str) -> str:
    """What the names of the toolchain's programs begin with when they compile for `arch`; empty: nothing."""
    return str(toolchain.cross.get(arch, ""))


def recipe_of(config: KernelConfig, toolchain: Toolchain) -> str:
    """SHA-256 in hex of what decides the files of a build besides the source: rows can be edited, a build cannot.

    What was added to recipes later counts only where it is used, so that kernels of before are still found.
    """
    parts = [config.base, effective_text(config), toolchain.compiler]
    cross = cross_prefix(toolchain, config.arch)
    later = {
        "family": "" if toolchain.family == Toolchain.Family.GCC else toolchain.family,
        "cross": cross,
        "perf": "yes" if config.perf else "",
    }
    parts += [f"{name}={value}" for name, value in later.items() if value]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


_OWN_TREE = OuterRef("tree_sha")


def unwanted_builds() -> QuerySet[Build]:
    """Builds that wait or run for superseded series alone: no living series and no policy wants their source tree."""
    return _unclaimed().filter(_wanted_by(SeriesState.SUPERSEDED))


def _unclaimed() -> QuerySet[Build]:
    """Builds that wait or run and that no living series and no policy wants."""
    chosen = WantedRevision.objects.filter(revision__tree_sha=_OWN_TREE)
    return Build.objects.filter(
        ~_wanted_by(SeriesState.APPLIED),
        ~Exists(chosen),
        state__in=[BuildState.WANTED, BuildState.DISPATCHED, BuildState.RUNNING],
    )


def _wanted_by(state: str) -> Q:
    """Builds whose source tree is the base or the head of a series in this state.

    Two questions, each by an index: one with OR over both would read every series for each build.
    """
    series = Series.objects.filter(state=state)
    return Q(Exists(series.filter(base__tree_sha=_OWN_TREE))) | Q(Exists(series.filter(head__tree_sha=_OWN_TREE)))


def cancel_unwanted(reason: Reason, keep: Collection[int] = (), *, trees: Collection[str] | None = None) -> int:
    """Cancel the builds that only superseded series wanted; returns how many. Who wants one later wants it again.

    `keep` are ids of builds that somebody waits for whom this layer does not know; `trees`, if given, the source trees
    that somebody like that wants no more: builds of those are canceled instead, where nobody else wants them.
    """
    found = unwanted_builds() if trees is None else _unclaimed().filter(tree_sha__in=trees)
    unwanted = found.exclude(pk__in=keep).order_by("pk")
    return sum(build.advance(BuildState.CANCELED, reason) for build in unwanted)


def cancel_edited() -> int:
    """Cancel waiting builds whose configuration or toolchain was edited since they were wanted; returns how many.

    A builder would be given today's lines for yesterday's recipe. Who still wants such a kernel wants the new one.
    """
    canceled = 0
    waiting = Build.objects.filter(state=BuildState.WANTED).select_related("config", "toolchain")
    recipes: dict[tuple[int, int], str] = {}
    for build in waiting:
        key = (build.config_id, build.toolchain_id)
        if key not in recipes:
            recipes[key] = _present_recipe(build)
        if recipes[key] != build.recipe:
            canceled += build.advance(BuildState.CANCELED, Because.EDITED())
    return canceled


def is_present(build: Build) -> bool:
    """Whether building it again would follow the recipe that it was made by."""
    return build.recipe == _present_recipe(build)


def _present_recipe(build: Build) -> str:
    try:
        return recipe_of(build.config, build.toolchain)
    except DomainError:
        return ""


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
            build.advance(BuildState.WANTED, Because.WANTED_AGAIN(), trace=trace, given_up=False)
        elif build.state in {BuildState.CANCELED, BuildState.EXPIRED}:
            wake_build(build, trace)
    return build


def wake_build(build: Build, trace: str) -> bool:
    """Have a build that was canceled, or whose files were removed, made again. It is to come out as the same kernel."""
    removed = build.state == BuildState.EXPIRED
    reason = Because.WANTED_AGAIN("wanted again: its files were removed" if removed else "wanted again")
    return build.advance(BuildState.WANTED, reason, trace=trace, used_at=clock.now())


def _failed_for(build: Build, trace: str) -> bool:
    return Transition.objects.filter(
        subject="build", subject_id=build.pk, trace=trace, after=BuildState.FAILED
    ).exists()
