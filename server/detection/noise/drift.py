"""Performance drift: a machine whose A/A changes exceed its own history is quarantined, and asked about."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import structlog

from server.detection.models import MachineQuestion
from server.detection.noise.cell_key import CellKey
from server.detection.noise.growth import Changes, Growth, growth
from server.detection.noise.history import equal_comparisons, log_ratio
from server.detection.noise.questions import open_question
from server.detection.vector import shorten
from server.lab.hosts import Health, change_health
from server.lab.models import Machine, Trial

log = structlog.get_logger(__name__)

# The trials before that count: with one a night, two months.
_HISTORY = 60


def judge_drift(trial: Trial, machine: Machine) -> bool:
    """Quarantine the machine if this A/A trial and the one before both say that it drifts; returns whether they do.

    Only trials after the last drift count as history, so that a machine that stays as noisy as it became is asked about
    once: what it shows from then on is its own. One that a person has in hands, or that is out of service for another
    reason, is left as it is, and so is one that was released when the trial is answered once more.
    """
    if MachineQuestion.objects.filter(key=_key(machine, trial)).exists():
        return True
    trials = _changes(machine, [*_history(trial, machine), trial.pk])
    found = growth(trials[:-2], trials[-1])
    if found is None or not found.is_suspicious:
        return False
    first = growth(trials[:-2], trials[-2])
    if first is None or not first.is_suspicious:
        log.info("machine_suspected", trace=trial.trace, machine=machine.name, times=found.times, chance=found.chance)
        return False
    detail = _sentence(trial, machine, found)
    open_question(_key(machine, trial), MachineQuestion.Kind.DRIFT, machine, detail, trace=trial.trace)
    if machine.enabled and machine.health == Health.GOOD and change_health(machine, Health.QUARANTINED, detail):
        log.warning("machine_drifts", trace=trial.trace, machine=machine.name, times=found.times, chance=found.chance)
    return True


def _key(machine: Machine, trial: Trial) -> str:
    return f"drift:{machine.pk}:{trial.pk}"


def _history(trial: Trial, machine: Machine) -> list[int]:
    """The machine's A/A trials since its last drift, oldest first."""
    trials = Trial.objects.filter(
        purpose=Trial.Purpose.NOISE, state=Trial.State.DONE, sessions__machine=machine, pk__lt=trial.pk
    )
    drifts = MachineQuestion.objects.filter(kind=MachineQuestion.Kind.DRIFT, machine=machine)
    drifted = [int(key.rpartition(":")[2]) for key in drifts.values_list("key", flat=True)]
    last = max((number for number in drifted if number < trial.pk), default=0)
    return list(trials.filter(pk__gt=last).order_by("-pk").values_list("pk", flat=True)[:_HISTORY])[::-1]


def _changes(machine: Machine, trials: Sequence[int]) -> list[Changes]:
    """What each of these trials showed on the machine."""
    found: dict[int, dict[CellKey, float]] = defaultdict(dict)
    rows = equal_comparisons([machine.pk]).filter(session__trial__in=trials)
    for trial, case, metric, core_type, ratio in rows.values_list(
        "session__trial", "case", "metric", "core_type", "ratio"
    ):
        found[trial][case, metric, core_type] = log_ratio(ratio)
    return [found[trial] for trial in trials]


def _sentence(trial: Trial, machine: Machine, found: Growth) -> str:
    names = _names(trial, machine)
    largest = sorted(found.sizes, key=lambda cell: -found.sizes[cell])
    told = [f"{names[cell]} ({found.sizes[cell]:.1f} times its usual change)" for cell in largest]
    return (
        f"equal kernels differ {found.times:.1f} times as much as they used to on {machine.name}, in two trials in a "
        f"row (now {trial.pk}): {shorten(told)}"
    )


def _names(trial: Trial, machine: Machine) -> Mapping[CellKey, str]:
    names: dict[CellKey, str] = {}
    rows = equal_comparisons([machine.pk]).filter(session__trial=trial)
    for row in rows.select_related("case", "metric", "core_type"):
        core_type = "" if row.core_type.name == "all" else f" on {row.core_type.name} cores"
        key = (row.case_id, row.metric_id, row.core_type_id)
        names[key] = f"{row.metric.name} of {row.case.name}{core_type} by {100 * (row.ratio or 1.0) - 100:+.2g} %"
    return names
