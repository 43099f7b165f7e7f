"""What a machine showed in its A/A trials, and which of them show it as it is."""

from collections import defaultdict
from collections.abc import Sequence

from server.detection.noise.cell_key import CellKey
from server.detection.noise.drifts import Drift, noise_trials
from server.detection.noise.growth import Changes
from server.detection.noise.history import comparisons_of_nights, log_ratio
from server.lab.models import Machine

# The trials before that count: with one a night, two months.
_HISTORY = 60


def usual_trials(machine: Machine, drifts: Sequence[Drift], *, before: int) -> list[int]:
    """The machine's A/A trials before that one which are its history, oldest first.

    Those of a drift are not. A machine that a person released after a drift is known from then on only: whatever was
    done to it, what it shows now is its own.
    """
    trials = noise_trials(machine.pk).filter(pk__lt=before)
    for drift in drifts:
        if drift.over is None:
            trials = trials.filter(state_since__lt=drift.began)
        elif drift.as_before:
            trials = trials.exclude(state_since__gte=drift.began, state_since__lt=drift.over)
        else:
            trials = trials.filter(state_since__gte=drift.over)
    return list(trials.order_by("-pk").values_list("pk", flat=True)[:_HISTORY])[::-1]


def changes_of(machine: Machine, trials: Sequence[int]) -> list[Changes]:
    """What each of these trials showed on the machine."""
    found: dict[int, dict[CellKey, float]] = defaultdict(dict)
    rows = comparisons_of_nights(machine.pk, trials)
    for trial, case, metric, core_type, ratio in rows.values_list(
        "session__trial", "case", "metric", "core_type", "ratio"
    ):
        found[trial][case, metric, core_type] = log_ratio(ratio)
    return [found[trial] for trial in trials]
