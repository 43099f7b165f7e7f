"""How files of builds go: unused for long, beyond the site's room, damaged, or belonging to nobody."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce

from server.builds.models import Artifact, Build, BuildState
from server.builds.storage import ArtifactStream, Stored, artifact_lock, artifact_store, is_whole, open_artifact
from server.builds.wanted import USE_GRAIN, touch_builds
from server.core import clock
from server.core.database import advisory_lock
from server.core.errors import DomainError
from server.core.reasons import Because, Reason

# Taking files of builds away: which are old enough, and how one goes so that nothing that is needed is lost.
#
# Rows first, then the file: whoever is killed in between leaves a file that no row names, which the next sweep of the
# store finds. A file that two builds share goes with the last of them.

log = structlog.get_logger(__name__)

# What a kernel is booted and measured with. The configuration and the log stay: they are small, and people read them.
LARGE_KINDS = (Artifact.Kind.IMAGE, Artifact.Kind.MODULES, Artifact.Kind.PERF, Artifact.Kind.SYSTEM_MAP)
# A file that was stored a moment ago belongs to a result that is on its way.
_YOUNG = timedelta(hours=1)


def expire_build(build: Build, reason: Reason) -> int:
    """Take away the large files of a build that nobody uses; returns how many bytes of the store that freed.

    Nothing happens, and 0 is returned, if the build is not BUILT any more, or was pinned, wanted or used since this
    object was read: a sweep takes minutes.
    """
    return remove_files(mark_expired(build.pk, reason, unused_since=build.used_at or clock.now()))


def mark_expired(build_id: int, reason: Reason, *, unused_since: datetime | None = None) -> list[str]:
    """Say in the rows that a build has expired and its large files are gone; returns their names, to be removed.

    With `unused_since` only if nobody has pinned it, and nobody has used it after that moment.
    """
    with transaction.atomic():
        build = Build.objects.select_for_update(of=("self",)).get(pk=build_id)
        if unused_since is not None and (build.pinned or (build.used_at and build.used_at > unused_since)):
            return []
        if build.state != BuildState.BUILT or not build.advance(BuildState.EXPIRED, reason):
            return []
        files = build.artifacts.filter(kind__in=LARGE_KINDS, removed_at=None)
        names = list(files.values_list("sha256", flat=True))
        files.update(removed_at=clock.now(), removal=reason[:200])
    return names


def forget_artifact(artifact: Artifact, reason: str) -> int:
    """Take away one file that is not needed to boot; returns how many bytes of the store that freed."""
    # By its name, too: a build that was made again meanwhile has another file in this row.
    row = Artifact.objects.filter(pk=artifact.pk, sha256=artifact.sha256, removed_at=None)
    row.update(removed_at=clock.now(), removal=reason[:200])
    return remove_files([artifact.sha256])


def remove_files(names: Iterable[str]) -> int:
    """Delete those files that no row names any more and that are not young; returns how many bytes that freed."""
    return sum(_remove_file(sha256) for sha256 in sorted(set(names)))


def _remove_file(sha256: str) -> int:
    store = artifact_store()
    with artifact_lock(sha256):
        if not _without_row([Stored(sha256, 0, clock.now())]):
            return 0
        found = store.find(sha256)
        if found is None or found.stored_at > clock.now() - _YOUNG:
            return 0
        store.remove(sha256)
    log.info("artifact_removed", sha256=sha256, size=found.size)
    return found.size


# Each file is read once a week: a disk that loses bits is found before it has lost much.
CHECK_EVERY = timedelta(days=7)


def check_artifacts(*, seconds: float, everything: bool = False) -> tuple[int, list[str]]:
    """Read stored files to their ends for `seconds`, those first that were not looked at for longest.

    Returns how many were read and the names of those that are damaged or gone, which were put aside. `everything`
    takes those that were looked at this week, too. A store that is away ends the look.
    """
    checked, damaged = 0, []
    end = time.monotonic() + seconds
    for sha256 in _unchecked(everything=everything):
        if time.monotonic() >= end:
            break
        try:
            whole = is_whole(sha256)
        except DomainError as error:
            log.warning("artifacts_not_checked", reason=error.message)
            break
        if whole:
            Artifact.objects.filter(sha256=sha256, removed_at=None).update(checked_at=clock.now())
        elif put_aside(sha256, "found by a check"):
            damaged.append(sha256)
        checked += 1
    return checked, damaged


def _unchecked(*, everything: bool) -> list[str]:
    rows = Artifact.objects.filter(removed_at=None)
    if not everything:
        rows = rows.filter(Q(checked_at=None) | Q(checked_at__lt=clock.now() - CHECK_EVERY))
    files = rows.order_by().values("sha256").annotate(last=Min("checked_at"))
    return [row["sha256"] for row in files.order_by("last", "sha256")]


def put_aside(sha256: str, found_by: str) -> bool:
    """Never serve this file again, and let the builds that need it be built again when they are wanted.

    Looks once more below the file's lock: one that was stored anew meanwhile stays. Returns whether it was put aside.
    """
    others: list[str] = []
    with artifact_lock(sha256):
        if is_whole(sha256):
            return False
        what = "damaged" if artifact_store().find(sha256) else "gone"
        artifact_store().put_aside(sha256)
        rows = Artifact.objects.filter(sha256=sha256, removed_at=None)
        for artifact in rows:
            log.error("artifact_damaged", sha256=sha256, build=artifact.build_id, kind=artifact.kind, what=what)
            if artifact.kind in LARGE_KINDS:
                reason = f"its {artifact.get_kind_display()} is {what}: {found_by}"
                others += mark_expired(artifact.build_id, Because.DAMAGED(reason))
        rows.update(removed_at=clock.now(), removal=f"{what}: {found_by}"[:200])
    # A kernel that is built again brings all of them.
    remove_files(others)
    return True


def serve_artifact(sha256: str) -> ArtifactStream:
    """The file in pieces; raises DomainError `not-found`, or `store-away`.

    One that turns out to be damaged ends before its last piece with DomainError `damaged`, so that its reader sees a
    transfer that was cut off, and is put aside: asked for again, it is not found.
    """
    stream = open_artifact(sha256)
    return ArtifactStream(stream.size, _checked(sha256, stream.chunks))


def _checked(sha256: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except DomainError as error:
        if error.code == "damaged":
            put_aside(sha256, "found when it was read")
        raise


# A builder that was cut off brings its result within a day; if it comes later it sends the files again.
_NAMELESS = timedelta(days=1)
# Names that one query asks for.
_AT_ONCE = 1000
# Who else keeps files in the store: which of these names are his.
OTHERS: list[Callable[[Collection[str]], set[str]]] = []


def nameless_files() -> list[Stored]:
    """Stored files that no row names and that are older than a day: of results that never came, or left by a kill."""
    oldest = clock.now() - _NAMELESS
    found = []
    batch: list[Stored] = []
    for stored in artifact_store().every():
        batch.append(stored)
        if len(batch) == _AT_ONCE:
            found += _without_row(batch)
            batch = []
    return [stored for stored in [*found, *_without_row(batch)] if stored.stored_at < oldest]


def _without_row(batch: list[Stored]) -> list[Stored]:
    names = [stored.sha256 for stored in batch]
    named = set(Artifact.objects.filter(sha256__in=names, removed_at=None).values_list("sha256", flat=True))
    named = named.union(*(others(names) for others in OTHERS))
    return [stored for stored in batch if stored.sha256 not in named]


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
    reason = Because.EXPIRED(f"its files were removed: {why}")
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
