"""The way out of a quarantine for drift: the machine is again as it was, and stays so for two A/A trials."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from server.core.tasks import enqueue
from server.detection.models import MachineQuestion
from server.detection.noise.drifts import Drift, drift_key, noise_trials
from server.detection.noise.growth import growth
from server.detection.noise.nights import changes_of, usual_trials
from server.detection.noise.questions import settle_question
from server.lab.hosts import Health, change_health
from server.lab.models import Machine, Trial

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
    health = Health.GOOD if machine.health_reason == question.detail else Health.UNKNOWN
    if not change_health(machine, health, reason):
        return False
    settle_question(question, reason)
    enqueue("lab.dispatch")
    log.info("machine_recovered", trace=trial.trace, machine=machine.name, health=health)
    return True


def _came_back_lately(drifts: Sequence[Drift], at: datetime) -> bool:
    return any(drift.as_before and drift.over is not None and at - drift.over < _SOON for drift in drifts)
