"""Drift: a machine that differs more between equal kernels than it used to is quarantined and asked about, and comes
back as it was.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import transaction

from server.core import clock
from server.core.tasks import enqueue
from server.detection.findings.vector import shorten
from server.detection.models import MachineQuestion
from server.detection.noise.questions import open_question, settle_question
from server.detection.trials.effects import (
    CellKey,
    Drift,
    comparisons_of_nights,
    drift_key,
    drifts_of,
    health_lines,
    log_ratio,
    noise_trials,
)
from server.lab.hosts.state import Health, change_health, is_in_hands
from server.lab.models import Machine, Trial
from server.stats.functions import special

Changes = Mapping[CellKey, float]

# Fifteen nights: with fewer, the spread between trials is known too badly (docs/detection/noise.md has a simulation).
FEWEST_TRIALS = 15
# So many changes of a cell, the newest among them, make its usual size.
FEWEST_CHANGES = 5
# A machine is judged by many cells: a benchmark with trouble of its own is not the machine's.
FEWEST_CELLS = 5
# Two trials in a row must both be so unlikely: a machine that did not change is quarantined at about one trial in 500
# at worst, as simulated (bench.statistics.machine_noise). One trial at a level as strict as that does not hold it: the
# logarithm of a noise that moves all cells alike is not normal so far out.
LEVEL = 0.0075
# Less than this many times its usual noise is no reason to take a machine out of service.
LEAST_GROWTH = 1.5
# A trial of a machine that drifted is as before when it is at most so many times as noisy as usual, and what a machine
# that never drifted shows so often at least. Both are far from what makes a drift, so that no machine on the border
# goes out of service and comes back night after night.
CALM_GROWTH = 1.2
CALM_CHANCE = 0.1
# One cell that went wild counts for this many usual ones at most.
_CAP = 6.0
# Cells that hardly vary, as counted instructions, have no noise to grow.
_STILL = 1e-5
# Deviation of log(mean |z|) over independent normal cells, times the root of their number: sqrt(pi / 2 - 1).
_INDEPENDENT = 0.756


@dataclass(frozen=True)
class Growth:
    """How many times its usual noise a machine shows, and the chance of that; `sizes` are the cells' shares of it."""

    times: float
    chance: float
    sizes: Mapping[CellKey, float]

    @property
    def is_suspicious(self) -> bool:
        return self.chance <= LEVEL and self.times >= LEAST_GROWTH

    @property
    def is_calm(self) -> bool:
        """As usual: not merely short of suspicious."""
        return self.chance >= CALM_CHANCE and self.times <= CALM_GROWTH


def growth(history: Sequence[Changes], newest: Changes) -> Growth | None:
    """The newest A/A trial against those before; None when there is too little to say anything.

    Changes are logarithms of ratios by cell. Each is measured in the usual size of its cell (the median over all
    trials, the newest among them, so that every trial is treated alike); a trial's noise is the mean over its cells.
    Cells of one trial are not independent: one bad hour moves them all. So their number gives no certainty; the spread
    of that mean between trials does, with Student's distribution for a further observation.
    """
    scales = _scales([*history, newest])
    levels = [level for trial in history if (level := _level(trial, scales)) is not None]
    now = _level(newest, scales)
    if now is None or len(levels) < FEWEST_TRIALS:
        return None
    number = len(levels)
    cells = sum(cell in scales for cell in newest)
    spread = max(statistics.stdev(levels), _INDEPENDENT / math.sqrt(cells))
    usual = statistics.fmean(levels)
    t = (now - usual) / (spread * math.sqrt(1 + 1 / number))
    sizes = {cell: abs(log) / scales[cell] for cell, log in newest.items() if cell in scales}
    return Growth(math.exp(now - usual), float(special.stdtr(number - 1, -t)), sizes)


def _scales(trials: Sequence[Changes]) -> dict[CellKey, float]:
    seen: dict[CellKey, list[float]] = defaultdict(list)
    for trial in trials:
        for cell, log in trial.items():
            seen[cell].append(abs(log))
    usual = {cell: statistics.median(sizes) for cell, sizes in seen.items() if len(sizes) >= FEWEST_CHANGES}
    return {cell: size for cell, size in usual.items() if size > _STILL}


def _level(trial: Changes, scales: Mapping[CellKey, float]) -> float | None:
    """The logarithm of the trial's noise; None for one of too few cells."""
    sizes = [min(abs(log) / scales[cell], _CAP) for cell, log in trial.items() if cell in scales]
    return math.log(max(statistics.fmean(sizes), _STILL)) if len(sizes) >= FEWEST_CELLS else None


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


log = structlog.get_logger(__name__)

# A machine that drifts again so soon after it came back by itself goes back and forth: a person has to look.
_SOON = timedelta(days=30)
_IN_A_ROW = 2
_BY_ITSELF = "lifted by two A/A trials in a row in which it is as before, or by a person"
_BY_A_PERSON = f"lifted by a person: it drifts again within {_SOON.days} days after it came back by itself"


def hold_of(drifts: Sequence[Drift], at: datetime) -> str:
    """What lifts the quarantine for a drift that is found now; `drifts` are those before it."""
    return _BY_A_PERSON if _came_back_lately(drifts, at) else _BY_ITSELF


def judge_recovery(trial: Trial, machine: Machine, drifts: Sequence[Drift]) -> bool:
    """Release a machine whose last drift goes on if this A/A trial and the one before show it as it was before that.

    Returns whether it was. One that was found to have other trouble meanwhile has to be checked first.
    """
    drift = drifts[-1]
    if not machine.is_held or _came_back_lately(drifts[:-1], drift.known):
        return False
    since = noise_trials(machine.pk).filter(pk__gt=drift.trial, pk__lte=trial.pk)
    newest = list(since.order_by("-pk").values_list("pk", flat=True)[:_IN_A_ROW])[::-1]
    history = usual_trials(machine, drifts, before=drift.trial)
    shown = changes_of(machine, [*history, *newest])
    before, after = shown[: len(history)], shown[len(history) :]
    found = [growth(before, changes) for changes in after]
    if len(found) < _IN_A_ROW or not all(one is not None and one.is_calm for one in found):
        return False
    question = MachineQuestion.objects.get(key=drift_key(machine.pk, drift.trial))
    told = " and ".join(f"{one.times:.1f}" for one in found if one is not None)
    reason = (
        f"equal kernels differ on {machine.name} as they used to before it drifted: {told} times as much in A/A trials "
        f"{' and '.join(map(str, newest))}"
    )
    # Whatever was said of its health since then, somebody else has to answer.
    newest_line = health_lines(machine.pk).order_by("-id").values_list("pk", flat=True).first()
    health = Health.GOOD if newest_line == question.quarantine_id else Health.UNKNOWN
    if not change_health(machine, health, reason):
        return False
    settle_question(question, reason)
    enqueue("lab.dispatch")
    log.info("machine_recovered", trace=trial.trace, machine=machine.name, health=health)
    return True


def _came_back_lately(drifts: Sequence[Drift], at: datetime) -> bool:
    return any(drift.as_before and drift.over is not None and at - drift.over < _SOON for drift in drifts)


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
    question = open_question(key, MachineQuestion.Kind.DRIFT, machine, detail, trial=trial, trace=trial.trace)
    fit = machine.enabled and machine.health == Health.GOOD
    if fit and _quarantine(machine, question, hold):
        log.warning("machine_drifts", trace=trial.trace, machine=machine.name, times=found.times, chance=found.chance)
    return True


def _quarantine(machine: Machine, question: MachineQuestion, hold: str) -> bool:
    with transaction.atomic():
        if not change_health(machine, Health.QUARANTINED, question.detail, hold=hold):
            return False
        question.quarantine = health_lines(machine.pk).filter(after=Health.QUARANTINED).latest("id")
        question.save(update_fields=["quarantine"])
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
