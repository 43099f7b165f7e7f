"""Minimum effects: what a change must exceed to be worth a verdict, beyond 1 % where a cell's noise asks for it."""

import math
from collections.abc import Mapping, Sequence

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Q

from server.detection.noise.drifts import Drift, drifts_of
from server.detection.noise.history import KEPT_CHANGES, REMEMBERED, equal_comparisons, planned_since
from server.detection.noise.quantiles import FEWEST_CHANGES, change_95
from server.lab.models import Session

# What every cell has at least: smaller changes get no verdict, as is published practice for kernels. A cell whose equal
# kernels differ by more has a larger one (docs/detection/noise.md).
LEAST_EFFECT = 0.01


def min_effects(sessions: Sequence[Session]) -> Mapping[tuple[int, int, int, int], float]:
    """Minimum effects as fractions by (session, case, metric, core type), where they are above 1 %.

    A cell's is the 95th percentile of its own A/A changes, as known when the session was created: judging the session
    again later gives the same. So are the drifts of its machine: their nights do not count, or one bad week would hide
    changes for a year. A cell with fewer than FEWEST_CHANGES changes has no entry. Five queries at most for
    any number of sessions on as many machines, and three more for each drift.

    It is not made smaller for sessions with more boots than an A/A session has. Sampling error is what intervals are
    for; this floor is what the machine does between equal kernels one time in twenty, whatever the reason, and a claim
    below it would not be believed by whoever knows the machine.
    """
    found: dict[tuple[int, int, int, int], float] = {}
    left = list(sessions)
    while left:
        # The database puts the changes of a cell into one row, which a second session on its machine would mix up.
        by_machine = {session.machine_id: session for session in reversed(left)}
        found |= _effects(by_machine)
        left = [session for session in left if by_machine[session.machine_id] is not session]
    return found


def effect_of(logs: Sequence[float]) -> float:
    """The minimum effect of a cell with these A/A changes (logarithms of ratios): 1 % unless they ask for more."""
    return max(LEAST_EFFECT, change_95(logs)) if len(logs) >= FEWEST_CHANGES else LEAST_EFFECT


def _effects(by_machine: Mapping[int, Session]) -> dict[tuple[int, int, int, int], float]:
    known = Q()
    drifts = drifts_of(by_machine.keys())
    for machine, session in by_machine.items():
        at = session.created_at
        own = Q(session__machine=machine, computed_at__gte=at - REMEMBERED, computed_at__lt=at)
        for drift in drifts:
            if drift.machine == machine and drift.known < at:
                own &= ~_nights(drift)
        known |= own
    since = planned_since(min(session.created_at for session in by_machine.values()))
    cells = equal_comparisons(by_machine.keys(), since=since).filter(known).order_by()
    grouped = cells.values("session__machine", "case", "metric", "core_type")
    found = {}
    for cell in grouped.annotate(ratios=ArrayAgg("ratio", order_by=("computed_at", "pk"))):
        effect = effect_of([math.log(ratio) for ratio in cell["ratios"][-KEPT_CHANGES:]])
        if effect > LEAST_EFFECT:
            session = by_machine[cell["session__machine"]]
            found[session.pk, cell["case"], cell["metric"], cell["core_type"]] = effect
    return found


def _nights(drift: Drift) -> Q:
    nights = Q(computed_at__gte=drift.began)
    return nights if drift.over is None else nights & Q(computed_at__lt=drift.over)
