"""Stored files that belong to nobody: of results that never came, or left by a process that was killed."""

from datetime import timedelta

from server.builds.models import Artifact
from server.builds.stores import Stored, artifact_store
from server.core import clock

# A builder that was cut off brings its result within a day; if it comes later it sends the files again.
_NAMELESS = timedelta(days=1)
# Names that one query asks for.
_AT_ONCE = 1000


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
    return [stored for stored in batch if stored.sha256 not in named]
