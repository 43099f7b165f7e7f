"""Switching machines off and on from outside, by the lab's control host."""

from django.conf import settings
from django.db import IntegrityError, transaction

from server.core.errors import DomainError
from server.lab.hosts import Health, State, change_health, change_state, follow_machine
from server.lab.models import Machine, PowerCycle, PowerCycleState

# The control host is a node of the controller; the local dispatcher knows no such host.
_LOCAL = "local"


def power_trouble() -> str:
    """Why no machine of this site can be switched off and on; empty where it can."""
    if settings.DISPATCHER == _LOCAL:
        return "the local dispatcher has no control host"
    return "" if settings.LAB_CONTROL else "no control host is configured (TIDEMARK_LAB_CONTROL)"


def want_power_cycle(machine: Machine, reason: str, *, actor: str = "") -> PowerCycle:
    """Have the machine switched off and on; the open power cycle if there is one already.

    It begins once no session holds the machine. Raises DomainError `no-power-control` where nobody could do it.
    """
    trouble = power_trouble()
    if trouble:
        raise DomainError("no-power-control", f"{machine.name} cannot be switched off and on: {trouble}")
    known = _open_cycle(machine)
    if known is not None:
        return known
    try:
        with transaction.atomic():
            cycle = PowerCycle(machine=machine, state=PowerCycleState.WANTED, reason=reason)
            cycle.save()
            cycle.record_creation(actor=actor)
            follow_machine(machine.pk, trace=cycle.trace)
    except IntegrityError:
        known = _open_cycle(machine)
        if known is None:
            raise
        return known
    return cycle


def _open_cycle(machine: Machine) -> PowerCycle | None:
    return PowerCycle.objects.filter(machine=machine, state__in=PowerCycle.OPEN).first()


def end_power_cycle(power_cycle: PowerCycle, ok: bool, reason: str) -> bool:  # noqa: FBT001 (binding signature)
    """Note how a power cycle ended. A machine that could not be switched is quarantined; one that was is waited for.

    False if it was over already.
    """
    if power_cycle.state not in PowerCycle.OPEN:
        return False
    with transaction.atomic():
        if not power_cycle.advance(PowerCycleState.DONE if ok else PowerCycleState.FAILED, reason):
            return False
        if not ok:
            give_up_machine(power_cycle.machine, f"could not be switched off and on: {reason}")
    return True


def give_up_machine(machine: Machine, reason: str) -> None:
    """Take a machine that does not come back out of service: quarantined, and offline until it is seen again."""
    with transaction.atomic():
        machine.refresh_from_db(fields=["state", "state_reason", "health", "health_reason", "health_hold"])
        change_health(machine, Health.QUARANTINED, reason)
        if machine.state in {State.RETURNING, State.POWER_CYCLING}:
            change_state(machine, State.OFFLINE, reason)
