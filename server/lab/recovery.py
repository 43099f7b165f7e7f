"""The lab's sweep: what hosts need after anything was lost, whoever was killed where."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from django.db.models import Q

from server.core import clock
from server.core.errors import DomainError
from server.lab.health import open_health_sessions, plan_health_session
from server.lab.hosts import HELD, Health, State, change_state, is_in_hands, mend_states
from server.lab.models import Builder, Machine, PowerCycle, PowerCycleState, Session
from server.lab.power import end_power_cycle, give_up_machine
from server.lab.stranded import rescue_stranded
from server.lab.trouble import after_lost, fetch_back, judge_builder, judge_machine

__all__ = ["after_lost", "sweep"]

log = structlog.get_logger(__name__)

# A server's firmware alone takes minutes, its file system check some more, and its hello comes every 5 minutes.
RETURN_WITHIN = timedelta(minutes=20)
# The same, from when the control host said that the power is back.
BACK_AFTER_POWER_CYCLE = timedelta(minutes=15)
# Nobody at the control host took the order: it is down, or has no job.
POWER_CYCLE_WITHIN = timedelta(hours=2)


def sweep() -> None:
    """Bring states in line, fetch back or give up who does not come back, check who waits for it, rescue sessions.

    Each step stands for itself: trouble of one must not keep the others from their work. Safe to repeat and to kill.
    """
    steps: tuple[Callable[[], object], ...] = (
        mend_states,
        _fetch_late_machines,
        _judge_power_cycles,
        _judge_hosts,
        plan_checks,
        rescue_stranded,
    )
    for step in steps:
        try:
            step()
        except DomainError as error:
            log.warning("sweep_step_failed", step=step.__name__, code=error.code, error=error.message)


def _fetch_late_machines() -> None:
    late = Machine.objects.filter(state=State.RETURNING, state_since__lt=clock.now() - RETURN_WITHIN)
    for machine in late:
        minutes = RETURN_WITHIN.total_seconds() / 60
        fetch_back(machine, f"not back {minutes:.0f} minutes after {machine.state_reason or 'its session'}")


def _judge_power_cycles() -> None:
    now = clock.now()
    stuck = PowerCycle.objects.filter(state__in=PowerCycle.OPEN, created_at__lt=now - POWER_CYCLE_WITHIN)
    for cycle in stuck.select_related("machine").exclude(attempts__state="running"):
        hours = POWER_CYCLE_WITHIN.total_seconds() / 3600
        end_power_cycle(cycle, False, f"not done within {hours:.0f} hours; {cycle.reason}".strip("; "))
    for machine in Machine.objects.filter(state=State.POWER_CYCLING):
        last = PowerCycle.objects.filter(machine=machine).order_by("-id").first()
        if last is None or last.state == PowerCycleState.CANCELED:
            change_state(machine, State.OFFLINE, "its power cycle was called off")
        elif last.state == PowerCycleState.FAILED:
            give_up_machine(machine, f"could not be switched off and on: {last.reason}")
        elif last.state == PowerCycleState.DONE and now - last.state_since > BACK_AFTER_POWER_CYCLE:
            minutes = BACK_AFTER_POWER_CYCLE.total_seconds() / 60
            give_up_machine(machine, f"not back {minutes:.0f} minutes after it was switched off and on")


def _judge_hosts() -> None:
    for machine in Machine.objects.filter(enabled=True, health=Health.GOOD):
        judge_machine(machine)
    for builder in Builder.objects.filter(enabled=True, health=Health.GOOD):
        judge_builder(builder)


# --- checks -----------------------------------------------------------------------------


def plan_checks() -> int:
    """Plan the health sessions that are due; returns how many."""
    waits = Q(health=Health.UNKNOWN) | Q(health=Health.QUARANTINED)
    # One that is held in quarantine would be measured in vain.
    machines = Machine.objects.filter(waits, enabled=True).exclude(HELD)
    machines = machines.select_related("config", "toolchain", "health_build")
    checked = set(open_health_sessions().values_list("machine", flat=True))
    planned = 0
    for machine in machines:
        if machine.pk not in checked and _is_due(machine):
            planned += plan_health_session(machine, machine.health_reason) is not None
    return planned


def _is_due(machine: Machine) -> bool:
    """Unknown ones always; quarantined ones when they were seen again, once, unless a person quarantined them."""
    if machine.health == Health.UNKNOWN:
        return True
    if machine.last_seen_at is None or machine.last_seen_at <= machine.health_since:
        return False
    health_sessions = Session.objects.filter(machine=machine, purpose=Session.Purpose.HEALTH)
    if health_sessions.filter(created_at__gt=machine.health_since).exists():
        return False
    return not is_in_hands(machine)
