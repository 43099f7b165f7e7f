"""Performance drift: a machine whose A/A changes exceed its own history is quarantined, and asked about."""

from collections.abc import Mapping

import structlog

from server.core import clock
from server.detection.models import MachineQuestion
from server.detection.noise.cell_key import CellKey
from server.detection.noise.drifts import drift_key, drifts_of
from server.detection.noise.growth import Growth, growth
from server.detection.noise.history import comparisons_of_nights
from server.detection.noise.nights import changes_of, usual_trials
from server.detection.noise.questions import open_question
from server.detection.noise.recovering import hold_of, judge_recovery
from server.detection.vector import shorten
from server.lab.hosts import Health, change_health, is_in_hands
from server.lab.models import Machine, Trial

log = structlog.get_logger(__name__)


def judge_drift(trial: Trial, machine: Machine) -> bool:
    """Quarantine the machine if this A/A trial and the one before both say that it drifts; returns whether they do.

    One that is in quarantine for that gets out of it here. One that a person has in hands is left as it is, and so is
    one that was released when the trial is answered once more. One that went out of service for another reason is
    judged by its next trial, when it is back.
    """
    key = drift_key(machine.pk, trial.pk)
    if MachineQuestion.objects.filter(key=key).exists():
        return True
    drifts = [drift for drift in drifts_of([machine.pk]) if drift.trial < trial.pk]
    if drifts and drifts[-1].over is None:
        judge_recovery(trial, machine, drifts)
        return False
    if _comes_back_by_itself(machine):
        log.info("drift_not_judged", trace=trial.trace, machine=machine.name, health=machine.health)
        return False
    trials = changes_of(machine, [*usual_trials(machine, drifts, before=trial.pk), trial.pk])
    found = growth(trials[:-2], trials[-1])
    if found is None or not found.is_suspicious:
        return False
    first = growth(trials[:-2], trials[-2])
    if first is None or not first.is_suspicious:
        log.info("machine_suspected", trace=trial.trace, machine=machine.name, times=found.times, chance=found.chance)
        return False
    detail, hold = _sentence(trial, machine, found), hold_of(drifts, clock.now())
    open_question(key, MachineQuestion.Kind.DRIFT, machine, detail, trace=trial.trace)
    fit = machine.enabled and machine.health == Health.GOOD
    if fit and change_health(machine, Health.QUARANTINED, detail, hold=hold):
        log.warning("machine_drifts", trace=trial.trace, machine=machine.name, times=found.times, chance=found.chance)
    return True


def _comes_back_by_itself(machine: Machine) -> bool:
    """Out of service for now, until a health session passes: nobody has looked at it who would know it from then on."""
    out = machine.health in (Health.QUARANTINED, Health.UNKNOWN)
    return machine.enabled and out and not is_in_hands(machine)


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
    rows = comparisons_of_nights(machine.pk, [trial.pk])
    for row in rows.select_related("case", "metric", "core_type"):
        core_type = "" if row.core_type.name == "all" else f" on {row.core_type.name} cores"
        key = (row.case_id, row.metric_id, row.core_type_id)
        names[key] = f"{row.metric.name} of {row.case.name}{core_type} by {100 * (row.ratio or 1.0) - 100:+.2g} %"
    return names
