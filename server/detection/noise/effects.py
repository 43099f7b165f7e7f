"""Minimum effects: what a change must exceed to be worth a verdict, beyond 1 % where a cell's noise asks for it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from server.detection.noise.cell_key import CellKey
from server.detection.noise.history import REMEMBERED, Change, equal_comparisons, log_ratio, recent
from server.detection.noise.quantiles import FEWEST_CHANGES, change_95
from server.lab.models import Session

# What every cell has at least.
LEAST_EFFECT = 0.01


def min_effects(sessions: Sequence[Session]) -> Mapping[tuple[int, int, int, int], float]:
    """Minimum effects as fractions by (session, case, metric, core type), where they are above 1 %. Two queries.

    A cell's is the 95th percentile of its own A/A changes, as known when the session was created: judging the session
    again later gives the same. A cell with fewer than FEWEST_CHANGES of them has no entry.

    It is not made smaller for sessions with more boots than an A/A session has. Sampling error is what intervals are
    for; this floor is what the machine does between equal kernels one time in twenty, whatever the reason, and a claim
    below it would not be believed by whoever knows the machine.
    """
    if not sessions:
        return {}
    changes = _changes(sessions)
    found: dict[tuple[int, int, int, int], float] = {}
    for session in sessions:
        for cell, history in changes.get(session.machine_id, {}).items():
            effect = effect_of(recent(history, before=session.created_at))
            if effect > LEAST_EFFECT:
                found[session.pk, *cell] = effect
    return found


def effect_of(logs: Sequence[float]) -> float:
    """The minimum effect of a cell with these A/A changes (logarithms of ratios): 1 % unless they ask for more."""
    return max(LEAST_EFFECT, change_95(logs)) if len(logs) >= FEWEST_CHANGES else LEAST_EFFECT


def _changes(sessions: Sequence[Session]) -> Mapping[int, Mapping[CellKey, Sequence[Change]]]:
    """A/A changes by machine and cell, oldest first, as far as any of the sessions looks back."""
    created = [session.created_at for session in sessions]
    rows = equal_comparisons({session.machine_id for session in sessions}).filter(
        computed_at__gte=min(created) - REMEMBERED, computed_at__lt=max(created)
    )
    found: dict[int, dict[CellKey, list[Change]]] = defaultdict(lambda: defaultdict(list))
    fields = ("session__machine", "case", "metric", "core_type", "ratio", "computed_at")
    for machine, case, metric, core_type, ratio, at in rows.values_list(*fields):
        found[machine][case, metric, core_type].append(Change(log_ratio(ratio), at))
    return found
