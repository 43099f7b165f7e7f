"""Finding files that are no longer what their names say: bit rot, files cut off or deleted by hand."""

import time
from datetime import timedelta

import structlog
from django.db.models import Min, Q

from server.builds.models import Artifact
from server.builds.reading import is_whole
from server.builds.removal import LARGE_KINDS, mark_expired, remove_files
from server.builds.storage import artifact_lock
from server.builds.stores import artifact_store
from server.core import clock
from server.core.errors import DomainError

log = structlog.get_logger(__name__)

# Each file is read once a week: a disk that loses bits is found before it has lost much.
CHECK_EVERY = timedelta(days=7)


def check_artifacts(*, seconds: float, everything: bool = False) -> tuple[int, list[str]]:
    """Read stored files to their ends for `seconds`, those first that were not looked at for longest.

    Returns how many were read and the names of those that are damaged or gone, which were put aside. `everything`
    takes those that were looked at this week, too. A store that is away ends the look.
    """
    checked, damaged = 0, []
    end = time.monotonic() + seconds
    for sha256 in _due(everything=everything):
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


def _due(*, everything: bool) -> list[str]:
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
                others += mark_expired(artifact.build_id, reason)
        rows.update(removed_at=clock.now(), removal=f"{what}: {found_by}"[:200])
    # A kernel that is built again brings all of them.
    remove_files(others)
    return True
