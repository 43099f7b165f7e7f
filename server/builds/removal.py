"""Taking files of builds away: which are old enough, and how one goes so that nothing that is needed is lost.

Rows first, then the file: whoever is killed in between leaves a file that no row names, which the next sweep of the
store finds. A file that two builds share goes with the last of them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from server.builds.models import Artifact, Build, BuildState
from server.builds.storage import artifact_lock
from server.builds.stores import artifact_store
from server.core import clock

log = structlog.get_logger(__name__)

# What a kernel is booted and measured with. The configuration and the log stay: they are small, and people read them.
LARGE_KINDS = (Artifact.Kind.IMAGE, Artifact.Kind.MODULES, Artifact.Kind.PERF, Artifact.Kind.SYSTEM_MAP)
# A file that was stored a moment ago belongs to a result that is on its way.
_YOUNG = timedelta(hours=1)


def expire_build(build: Build, reason: str) -> int:
    """Take away the large files of a build that nobody uses; returns how many bytes of the store that freed.

    Nothing happens, and 0 is returned, if the build is not BUILT any more, or was pinned, wanted or used since this
    object was read: a sweep takes minutes.
    """
    return remove_files(mark_expired(build.pk, reason, unused_since=build.used_at or clock.now()))


def mark_expired(build_id: int, reason: str, *, unused_since: datetime | None = None) -> list[str]:
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
        if Artifact.objects.filter(sha256=sha256, removed_at=None).exists():
            return 0
        found = store.find(sha256)
        if found is None or found.stored_at > clock.now() - _YOUNG:
            return 0
        store.remove(sha256)
    log.info("artifact_removed", sha256=sha256, size=found.size)
    return found.size
