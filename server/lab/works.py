"""What a dispatcher is told of an attempt, and until when an attempt may take."""

from datetime import datetime, timedelta

from django.conf import settings

from server.builds.models import Build
from server.core import clock
from server.core.models import ApiToken
from server.lab.dispatch.base import Kind, Work
from server.lab.models import Attempt, Boot, BootState, Machine, PowerCycle, Session
from server.lab.scheduling import local_builder

# The boot driver whose agent runs outside of the machine that it boots.
_OUTSIDE = "qemu"
# From opening to claim: a controller's queue is short, since nothing is given to a host that is busy or away.
_CLAIM_WITHIN = timedelta(minutes=30)
# From arrival to claim: the agent on the machine takes its key within a minute or not at all.
_TAKE_WITHIN = timedelta(minutes=15)
# An agent that beats on and never ends is stuck; these are far above what its own time limits allow.
_BUILD_WITHIN = timedelta(hours=3)
_POWER_CYCLE_WITHIN = timedelta(minutes=30)
_AROUND_A_BOOT = timedelta(minutes=15)
_AROUND_A_SESSION = timedelta(hours=1)


def boots_itself(machine: Machine) -> bool:
    """Whether its agent lives inside of it, and outlives what the dispatcher started."""
    return machine.boot_driver != _OUTSIDE


def work_of(attempt: Attempt) -> Work:
    if attempt.session is not None:
        machine = attempt.session.machine
        scope, kind = ApiToken.Scope.MACHINE, Kind.SESSION
        return Work(attempt.key, scope, machine.name, kind, machine.node_name, boots_itself(machine))
    if attempt.power_cycle_id is not None:
        control = settings.LAB_CONTROL
        return Work(attempt.key, ApiToken.Scope.CONTROL, control, Kind.POWER_CYCLE, control)
    builder = attempt.builder or local_builder()
    return Work(attempt.key, ApiToken.Scope.BUILDER, builder.name, Kind.BUILD, builder.node_name)


def kind_of(item: Build | Session | PowerCycle) -> Kind:
    if isinstance(item, Build):
        return Kind.BUILD
    return Kind.SESSION if isinstance(item, Session) else Kind.POWER_CYCLE


def claim_deadline() -> datetime:
    return clock.now() + _CLAIM_WITHIN


def take_deadline() -> datetime:
    return clock.now() + _TAKE_WITHIN


def end_deadline(attempt: Attempt, boot_seconds: float = 0.0) -> datetime:
    """When a claimed attempt is stopped; `boot_seconds` is how long its agent gives one boot with its cases.

    Each boot is counted twice, since those that failed for reasons of ours are tried again.
    """
    if attempt.session_id is None:
        return clock.now() + (_BUILD_WITHIN if attempt.build_id is not None else _POWER_CYCLE_WITHIN)
    open_boots = Boot.objects.filter(
        session=attempt.session_id, state__in=[BootState.PLANNED, BootState.RUNNING]
    ).count()
    return clock.now() + _AROUND_A_SESSION + 2 * open_boots * (timedelta(seconds=boot_seconds) + _AROUND_A_BOOT)


def is_leased(attempt: Attempt) -> bool:
    """Whether its agent was heard of so lately that it has to be taken for alive."""
    return attempt.lease_until is not None and attempt.lease_until > clock.now()
