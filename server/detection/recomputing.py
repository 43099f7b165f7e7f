"""Whether stored comparisons are still what their measurements say."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from server.detection.cells import fresh_comparisons
from server.detection.models import Comparison, Finding
from server.lab.models import Session

# Another version of the numeric libraries may change the last digits, never more.
_TOLERANCE = 1e-9
# Of a p-value below this no digit counts.
_NOTHING = 1e-15
_NUMBERS = (
    "base_mean",
    "base_sd",
    "patched_mean",
    "patched_sd",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "p_adjusted",
    "p_rank",
    "min_effect",
    "mde",
)
_WORDS = ("verdict", "reason", "base_boots", "patched_boots", "family_size", "flags")


@dataclass(frozen=True)
class Difference:
    """One field of one cell that is stored otherwise than it would be computed now."""

    finding_id: int
    cell: str
    field: str
    stored: str
    fresh: str

    def __str__(self) -> str:
        return f"finding {self.finding_id}, {self.cell}: {self.field} is {self.stored}, now {self.fresh}"


def differences(finding: Finding) -> list[Difference]:
    """Every field of every judged cell of the finding's series that no longer follows from the measurements."""
    stored = {
        _key(row): row
        for row in Comparison.objects.filter(session__series=finding.series_id).select_related(
            "session__machine", "case__benchmark", "metric", "core_type"
        )
    }
    judged = Session.objects.filter(pk__in={row.session_id for row in stored.values()}).select_related("machine")
    fresh = {_key(row): row for row in fresh_comparisons(list(judged))}
    found = []
    for key in sorted(stored.keys() | fresh.keys()):
        old, new = stored.get(key), fresh.get(key)
        if old is None or new is None:
            presence = ("missing", "there") if old is None else ("there", "missing")
            found.append(Difference(finding.pk, _name(old or new), "comparison", *presence))
        else:
            changed = _changed(old, new)
            found += [Difference(finding.pk, _name(old), *change) for change in changed]
    return found


def _changed(old: Comparison, new: Comparison) -> Iterator[tuple[str, str, str]]:
    for name in _WORDS:
        if getattr(old, name) != getattr(new, name):
            yield name, repr(getattr(old, name)), repr(getattr(new, name))
    for name in _NUMBERS:
        before, now = getattr(old, name), getattr(new, name)
        if not _same(before, now):
            yield name, _shown(before), _shown(now)


def _same(before: float | None, now: float | None) -> bool:
    if before is None or now is None:
        return before is now
    return math.isclose(before, now, rel_tol=_TOLERANCE, abs_tol=_NOTHING)


def _shown(number: float | None) -> str:
    """With the digits that count."""
    return "None" if number is None else f"{number:.10g}"


def _key(row: Comparison) -> tuple[int, int, int, int]:
    return row.session_id, row.case_id, row.metric_id, row.core_type_id


def _name(row: Comparison | None) -> str:
    if row is None:
        return ""
    return f"{row.session.machine.name} {row.metric.name} of {row.case} ({row.core_type.name})"
