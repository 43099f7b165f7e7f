"""What a trial of a head says: the ratios that may enter timelines."""

from server.detection.doubting import OTHER_MACHINE
from server.detection.models import Comparison
from server.detection.scope import trial_scope
from server.lab.models import Trial


def ratios_of(trial: Trial, *, virtual_too: bool | None = None) -> tuple[list[Comparison], bool]:
    """Comparisons with a ratio of the sessions that may be judged together, and whether these are virtual.

    Verdicts do not matter here: a point that says little alone speaks with its neighbours. Where a machine is marked
    otherwise than its boots showed, it has no timeline: it would be mixed with others. What it measured while its
    hardware or firmware was changed is no ratio of kernels.
    """
    scope = trial_scope(trial, virtual_too=virtual_too)
    if scope is None:
        return [], False
    rows = (
        Comparison.objects.filter(session__in=scope.sessions, session__machine__virtual=scope.virtual)
        .exclude(ratio=None)
        .exclude(reason__startswith=OTHER_MACHINE)
        .select_related("session__machine", "case", "metric", "core_type")
        .order_by("session__machine__name", "case_id", "metric_id", "core_type_id")
    )
    return [row for row in rows if row.ratio is not None and row.ratio > 0], scope.virtual
