"""Why a machine takes no sessions, in words."""

from server.lab.hosts import Health
from server.lab.models import Machine


def out_of_service(machine: Machine) -> str:
    """Empty for one that is enabled and well."""
    if not machine.enabled:
        return f"machine {machine.name} is disabled"
    if machine.health == Health.GOOD:
        return ""
    word = "in maintenance" if machine.health == Health.MAINTENANCE else machine.health
    reason = f": {machine.health_reason}" if machine.health_reason else ""
    return f"machine {machine.name} is {word}{reason}"
