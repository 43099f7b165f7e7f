"""Whether stored noise profiles are still what their comparisons say."""

import math
from collections.abc import Iterator
from dataclasses import fields

from server.detection.models import NoiseProfile
from server.detection.noise.profiles import Profile, fresh_profiles
from server.detection.recomputing import Difference
from server.lab.models import Machine

# Another version of the numeric libraries may change the last digits, never more.
_TOLERANCE = 1e-9


def differences() -> Iterator[Difference]:
    """Every field of every stored profile that is not what its comparisons, up to its last one, give now."""
    for machine in Machine.objects.filter(noise_profiles__isnull=False).distinct().order_by("name"):
        stored = {
            (row.case_id, row.metric_id, row.core_type_id): row
            for row in NoiseProfile.objects.filter(machine=machine).select_related(
                "case__benchmark", "metric", "core_type"
            )
        }
        fresh = fresh_profiles(machine, {key: row.last_at for key, row in stored.items()})
        for key, row in stored.items():
            yield from _changed(machine, row, fresh.get(key))


def _changed(machine: Machine, row: NoiseProfile, now: Profile | None) -> Iterator[Difference]:
    what = f"{row.metric.name} of {row.case} ({row.core_type.name})"
    subject = f"noise of {machine.name}"
    if now is None:
        yield Difference(subject, what, "profile", "there", "missing")
        return
    for field in fields(Profile):
        before, after = getattr(row, field.name), getattr(now, field.name)
        if not _same(before, after):
            yield Difference(subject, what, field.name, str(before), str(after))


def _same(stored: object, fresh: object) -> bool:
    if isinstance(stored, list) and isinstance(fresh, list):
        return len(stored) == len(fresh) and all(map(_same, stored, fresh))
    if isinstance(stored, float) and isinstance(fresh, float):
        return math.isclose(stored, fresh, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return stored == fresh
