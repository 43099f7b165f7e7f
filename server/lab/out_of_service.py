"""Why a machine takes no sessions, in words."""

from server.lab.hosts import Health
from server.lab.models import Machine, Trial


def out_of_service(machine: Machine, trial: Trial | None = None) -> str:
    """Why it takes no session of this trial, or of any; empty for one that is enabled and well."""
    if not machine.enabled:
        return f"machine {machine.name} is disabled"
    if machine.health == Health.GOOD or is_tried(machine, trial):
        return ""
    word = "in maintenance" if machine.health == Health.MAINTENANCE else machine.health
    reason = f": {machine.health_reason}" if machine.health_reason else ""
    return f"machine {machine.name} is {word}{reason}"


def is_tried(machine: Machine, trial: Trial | None) -> bool:
    """Whether the machine is held in quarantine, and the trial compares equal kernels there: that asks how it is."""
    return machine.is_held and trial is not None and trial.purpose == Trial.Purpose.NOISE
