"""The lab's sweep: what hosts need after anything was lost, whoever was killed where."""

from collections.abc import Callable
from datetime import timedelta

import structlog
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery

from server.core import clock
from server.core.errors import DomainError
from server.lab.health import open_health_sessions, plan_health_session
from server.lab.hosts import HELD, Health, State, change_state, mend_states, quarantined_by_person
from server.lab.models import Machine, PowerCycle, PowerCycleState, Session
from server.lab.power import end_power_cycle, give_up_machine
from server.lab.stranded import rescue_stranded
from server.lab.trouble import after_lost, fetch_back, judge_hosts

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
        judge_hosts,
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
    cycling = Machine.objects.filter(state=State.POWER_CYCLING)
    newest = PowerCycle.objects.filter(machine=OuterRef("pk")).order_by("-id").values("pk")[:1]
    cycles = PowerCycle.objects.filter(pk__in=cycling.order_by().annotate(newest=Subquery(newest)).values("newest"))
    last_of = {cycle.machine_id: cycle for cycle in cycles}
    for machine in cycling:
        last = last_of.get(machine.pk)
        if last is None or last.state == PowerCycleState.CANCELED:
            change_state(machine, State.OFFLINE, "its power cycle was called off")
        elif last.state == PowerCycleState.FAILED:
            give_up_machine(machine, f"could not be switched off and on: {last.reason}")
        elif last.state == PowerCycleState.DONE and now - last.state_since > BACK_AFTER_POWER_CYCLE:
            minutes = BACK_AFTER_POWER_CYCLE.total_seconds() / 60
            give_up_machine(machine, f"not back {minutes:.0f} minutes after it was switched off and on")


# --- checks -----------------------------------------------------------------------------


def plan_checks() -> int:
    """Plan the health sessions that are due; returns how many."""
    checked = set(open_health_sessions().values_list("machine", flat=True))
    planned = 0
    for machine in _due_for_check().select_related("config", "toolchain", "health_build"):
        if machine.pk not in checked:
            planned += plan_health_session(machine, machine.health_reason) is not None
    return planned


def _due_for_check() -> QuerySet[Machine]:
    """Unknown ones always; quarantined ones when they were seen again, once, unless a person quarantined them.

    One that is held in quarantine would be measured in vain.
    """
    since = Session.objects.filter(
        machine=OuterRef("pk"), purpose=Session.Purpose.HEALTH, created_at__gt=OuterRef("health_since")
    )
    seen_again = Q(health=Health.QUARANTINED, last_seen_at__gt=F("health_since"))
    machines = Machine.objects.filter(enabled=True).exclude(HELD)
    return machines.filter(Q(health=Health.UNKNOWN) | seen_again & ~Exists(since) & ~quarantined_by_person())
