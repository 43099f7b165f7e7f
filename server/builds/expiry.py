"""The policy by which files of builds go: unused for long, beyond the site's room, or logs of long ago."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from server.builds.models import Artifact, Build, BuildState
from server.builds.nameless import nameless_files
from server.builds.removal import LARGE_KINDS, expire_build, forget_artifact, remove_files
from server.builds.selectors import USE_GRAIN, touch_builds
from server.core import clock
from server.core.locks import advisory_lock

log = structlog.get_logger(__name__)
_GB = 1024**3
_FINAL = (BuildState.BUILT, BuildState.FAILED, BuildState.CANCELED, BuildState.EXPIRED)


@dataclass(frozen=True)
class Removal:
    """One thing that goes or would go: what, why, and about how many bytes that frees."""

    what: str
    why: str
    size: int
    act: Callable[[], int]


def expire_artifacts(in_use: Collection[int], *, dry_run: bool = False) -> list[Removal]:
    """Take away what the site's policy lets go and return it: by age, then by room, then logs and nameless files.

    `in_use` are ids of builds that somebody still needs to boot: they count as used now. One process at a time; safe to
    be killed and repeated.
    """
    with advisory_lock("builds.expire") as free:
        if not free:
            return []
        if not dry_run:
            touch_builds(in_use)
        removals = []
        for removal in _due(in_use):
            if not dry_run:
                freed = removal.act()
                log.info("artifacts_expired", what=removal.what, why=removal.why, freed=freed)
            removals.append(removal)
        return removals


def _due(in_use: Collection[int]) -> Iterator[Removal]:
    old = list(_old_builds(in_use))
    yield from (_of_build(build, f"not used for {settings.ARTIFACT_DAYS:g} days") for build in old)
    yield from _beyond_room(in_use, gone=old)
    yield from _old_logs()
    for stored in nameless_files():
        what = f"file {stored.sha256[:12]}"
        yield Removal(what, "no build names it", stored.size, partial(remove_files, [stored.sha256]))


def _expirable(in_use: Collection[int]) -> QuerySet[Build]:
    """Built kernels that may go, those used longest ago first. Whoever wanted one just now is not in `in_use` yet."""
    fresh = Q(used_at__gte=clock.now() - USE_GRAIN)
    rows = Build.objects.filter(state=BuildState.BUILT, pinned=False).exclude(pk__in=list(in_use)).exclude(fresh)
    large = Q(artifacts__kind__in=LARGE_KINDS, artifacts__removed_at=None)
    return (
        rows.annotate(large=Coalesce(Sum("artifacts__size", filter=large), 0))
        .select_related("revision", "config")
        .order_by(Coalesce("used_at", "state_since"), "pk")
    )


def _old_builds(in_use: Collection[int]) -> QuerySet[Build]:
    if not settings.ARTIFACT_DAYS:
        return Build.objects.none()
    oldest = clock.now() - timedelta(days=settings.ARTIFACT_DAYS)
    return _expirable(in_use).filter(Q(used_at__lt=oldest) | Q(used_at=None, state_since__lt=oldest))


def _of_build(build: Build, why: str) -> Removal:
    reason = f"its files were removed: {why}"
    return Removal(str(build), why, int(getattr(build, "large", 0)), partial(expire_build, build, reason))


def stored_bytes(without: Collection[int] = ()) -> int:
    """Bytes of all files that rows name, each file once, leaving out large files of the builds in `without`."""
    gone = Q(build__in=list(without), kind__in=LARGE_KINDS)
    rows = Artifact.objects.filter(removed_at=None).exclude(gone)
    return sum(size for _name, size in rows.order_by().values_list("sha256", "size").distinct())


def _beyond_room(in_use: Collection[int], gone: Collection[Build]) -> Iterator[Removal]:
    room = settings.ARTIFACT_GB * _GB
    names = [build.pk for build in gone]
    over = stored_bytes(names) - room
    if not room or over <= 0:
        return
    for build in _expirable(in_use).exclude(pk__in=names):
        names.append(build.pk)
        yield _of_build(build, f"more than {settings.ARTIFACT_GB:g} GB are stored")
        over -= int(getattr(build, "large", 0))
        if over <= 0:
            # Files that builds share count once: the estimate was too good where some of them stay.
            over = stored_bytes(names) - room
            if over <= 0:
                return
    log.warning("artifacts_beyond_room", over_bytes=over, room_gb=settings.ARTIFACT_GB)


def _old_logs() -> Iterator[Removal]:
    if not settings.LOG_DAYS:
        return
    oldest = clock.now() - timedelta(days=settings.LOG_DAYS)
    unused = Q(build__used_at__lt=oldest) | Q(build__used_at=None, build__state_since__lt=oldest)
    kept = {"kind": Artifact.Kind.LOG, "removed_at": None, "build__state__in": _FINAL, "build__pinned": False}
    for artifact in Artifact.objects.filter(unused, **kept).order_by("pk"):
        why = f"older than {settings.LOG_DAYS:g} days"
        yield Removal(str(artifact), why, artifact.size, partial(forget_artifact, artifact, why))
