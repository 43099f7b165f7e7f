"""Questions about builds that schedulers and pages ask."""

from collections.abc import Collection
from datetime import timedelta

from django.db.models import F, Q

from server.builds.models import Build
from server.core import clock

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
