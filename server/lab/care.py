"""What people decide about hosts. Each step names who did it; what it stops is planned again elsewhere."""

from server.core.errors import DomainError
from server.core.tasks import enqueue
from server.lab import physical
from server.lab.attempts import cancel_attempt, end_session
from server.lab.health import open_health_sessions, plan_health_session
from server.lab.hosts import Health, change_health
from server.lab.models import Attempt, Builder, Machine, PowerCycle, PowerCycleState, Session, SessionState
from server.lab.power import power_trouble, want_power_cycle

Host = Machine | Builder
_LONGEST_REASON = 2000


def quarantine(host: Host, reason: str, *, actor: str) -> None:
    """Nothing more goes there until it is released or passes a check; what runs there is stopped and planned again.

    Whoever quarantines a host does not trust what it does now.
    """
    _change(host, Health.QUARANTINED, reason, actor)
    why = f"{host.name} was quarantined by {actor}: {reason}"
    _call_off_checks(host, why)
    _stop_work(host, why)


def retire(host: Host, reason: str, *, actor: str) -> None:
    """For good, as far as the service is concerned; what runs there is stopped."""
    _change(host, Health.RETIRED, reason, actor)
    _call_off_power_cycles(host, actor)
    _stop_work(host, f"{host.name} was retired by {actor}: {reason}")


def maintain(host: Host, reason: str, *, actor: str) -> None:
    """Nothing new goes there; what runs is finished first, since nothing is wrong with it."""
    _change(host, Health.MAINTENANCE, reason, actor)
    _call_off_power_cycles(host, actor)
    enqueue("lab.sweep")


def release(host: Host, reason: str, *, actor: str) -> None:
    """Good again, on the word of a person."""
    _change(host, Health.GOOD, reason, actor)
    enqueue("lab.dispatch")


def check(machine: Machine, *, actor: str, reason: str = "") -> Session | None:
    """Only work again once a health session has passed; the session, or None while its kernel is being built."""
    reason = reason or f"a check was asked for by {actor}"
    if not machine.enabled:
        raise DomainError("disabled", f"{machine.name} is disabled: nothing goes there")
    if machine.health != Health.UNKNOWN:
        _change(machine, Health.UNKNOWN, reason, actor)
    return plan_health_session(machine, reason)


def power_cycle(machine: Machine, reason: str, *, actor: str) -> PowerCycle:
    """Have it switched off and on; a session that runs there is stopped first and planned again."""
    reason = _checked(reason, actor)
    cycle = want_power_cycle(machine, f"{actor}: {reason}", actor=actor)
    _stop_work(machine, f"{machine.name} is switched off and on for {actor}: {reason}")
    enqueue("lab.dispatch")
    return cycle


def call_physical(machine: Machine, reason: str, *, actor: str) -> None:
    """It is no virtual machine, on the word of a person who knows it: what it measures is evidence from now on."""
    physical.call_physical(machine, _checked(reason, actor), actor=actor)


def doubt(machine: Machine, reason: str, *, actor: str) -> None:
    """Nobody vouches for it any more: what probes doubt counts again."""
    physical.take_back(machine, _checked(reason, actor), actor=actor)


def can_power_cycle() -> bool:
    """Whether this site has a control host; for pages that offer it."""
    return not power_trouble()


def _checked(reason: str, actor: str) -> str:
    reason = " ".join(reason.split())[:_LONGEST_REASON]
    if not reason:
        raise DomainError("no-reason", "say why: others will want to know")
    if not actor:
        raise DomainError("no-actor", "say who decides this")
    return reason


def _change(host: Host, health: str, reason: str, actor: str) -> None:
    reason = _checked(reason, actor)
    if change_health(host, health, reason, actor=actor):
        return
    host.refresh_from_db(fields=["health", "health_reason"])
    if host.health != health:
        raise DomainError("moved", f"{host.name} became {host.health} meanwhile: look again", permanent=False)


def _call_off_power_cycles(host: Host, actor: str) -> None:
    """Nobody wants the power switched while his hands are in a machine; who does says so once more."""
    cycles = PowerCycle.objects.filter(machine__name=host.name, state=PowerCycleState.WANTED)
    for cycle in cycles if isinstance(host, Machine) else ():
        cycle.advance(PowerCycleState.CANCELED, f"{actor} took {host.name} into his hands", actor=actor)


def _call_off_checks(host: Host, reason: str) -> None:
    """A check that goes on would only say what nobody asked for: who quarantined the machine has it checked himself."""
    for session in open_health_sessions().filter(machine__name=host.name) if isinstance(host, Machine) else ():
        attempt = session.attempts.filter(state__in=Attempt.ACTIVE).first()
        if attempt is None:
            end_session(session, SessionState.CANCELED, reason)
        else:
            cancel_attempt(attempt, reason)


def _stop_work(host: Host, reason: str) -> None:
    """Trouble of the host is not the work's: the attempts end as lost, and their work is planned again."""
    own = {"machine": host} if isinstance(host, Machine) else {"builder": host}
    for attempt in Attempt.objects.filter(**own, state__in=Attempt.ACTIVE).select_related("session", "build"):
        cancel_attempt(attempt, reason, losing=True)
    enqueue("lab.sweep")
