"""Work for hosts: what a dispatcher is told of an attempt, until when it may take, and in which order a session
boots.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings

from server.builds.models import Build
from server.core import clock
from server.core.models import ApiToken
from server.core.states import record_creations
from server.lab.models import Attempt, Boot, BootState, Builder, Machine, PowerCycle, Session
from server.lab.port import Work, WorkKind

LOCAL_BUILDER = "local-builder"


def local_builder() -> Builder:
    """The row of the builder that a local dispatcher uses, made at need. It takes every build, one at a time.

    A site's file and the first dispatch make it; what only looks leaves it alone.
    """
    builder = Builder.objects.filter(name=LOCAL_BUILDER).first()
    return builder or Builder.objects.get_or_create(name=LOCAL_BUILDER)[0]


# How agents start kernels: the one around the machine it emulates, all others from inside of it.
OUTSIDE = "qemu"
DRIVERS = frozenset({OUTSIDE, "kexec", "grub", "current"})
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
    return machine.boot_driver != OUTSIDE


def work_of(attempt: Attempt) -> Work:
    if attempt.session is not None:
        machine = attempt.session.machine
        scope, kind = ApiToken.Scope.MACHINE, WorkKind.SESSION
        return Work(attempt.key, scope, machine.name, kind, machine.node_name, boots_itself(machine))
    if attempt.power_cycle_id is not None:
        control = settings.LAB_CONTROL
        return Work(attempt.key, ApiToken.Scope.CONTROL, control, WorkKind.POWER_CYCLE, control)
    builder = attempt.builder or local_builder()
    return Work(attempt.key, ApiToken.Scope.BUILDER, builder.name, WorkKind.BUILD, builder.node_name)


def kind_of(item: Build | Session | PowerCycle) -> WorkKind:
    if isinstance(item, Build):
        return WorkKind.BUILD
    return WorkKind.SESSION if isinstance(item, Session) else WorkKind.POWER_CYCLE


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


# Balanced against drift: each kernel stands as often early as late.
_INTERLEAVED = (Boot.Arm.BASE, Boot.Arm.PATCHED, Boot.Arm.PATCHED, Boot.Arm.BASE)


def boot_order(boots_per_side: int) -> list[str]:
    """Arms in the order of their boots: A B B A A B B A ..., as many of each arm as asked for."""
    return balanced_order(boots_per_side, boots_per_side, 0)


def balanced_order(base: int, patched: int, start: int) -> list[str]:
    """Arms of so many boots of each kernel, from position `start` of a session on.

    Of unequal numbers the smaller is spread over the larger, so that a kernel whose boots are repeated does not stand
    at the end alone.
    """
    counts = {Boot.Arm.BASE: base, Boot.Arm.PATCHED: patched}
    given = dict.fromkeys(counts, 0)
    order: list[str] = []
    for position in range(start, start + base + patched):
        usual = _INTERLEAVED[position % 4]
        # Compared as products: shares of what each arm gets in all, without division.
        behind = given[Boot.Arm.BASE] * patched - given[Boot.Arm.PATCHED] * base
        arm = usual if behind == 0 else Boot.Arm.PATCHED if behind > 0 else Boot.Arm.BASE
        if given[arm] == counts[arm]:
            arm = Boot.Arm.PATCHED if arm == Boot.Arm.BASE else Boot.Arm.BASE
        given[arm] += 1
        order.append(arm)
    return order


def plan_boots(session: Session, arms: Sequence[str], start: int = 0) -> None:
    """Plan boots of these arms from position `start` of the session on, in a few queries however many they are."""
    boots = [
        Boot(session=session, position=position, arm=arm, state=BootState.PLANNED, trace=session.trace)
        for position, arm in enumerate(arms, start)
    ]
    record_creations(Boot.objects.bulk_create(boots))
