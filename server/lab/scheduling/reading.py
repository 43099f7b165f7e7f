"""Reads the snapshot: a handful of queries of plain values, whatever waits."""

from datetime import datetime

from django.conf import settings
from django.db.models import Q

from server.core import clock
from server.lab.models import Attempt, Builder, Machine, PowerCycle, PowerCycleState, builds_at_work
from server.lab.scheduling.backoff import delayed_cycles
from server.lab.scheduling.builders import LOCAL_BUILDER, is_local_site
from server.lab.scheduling.fairness import weight_of
from server.lab.scheduling.history import on_builders, on_machines, warm_trees
from server.lab.scheduling.reading_work import waiting_builds, waiting_sessions
from server.lab.scheduling.snapshot import BuilderFacts, MachineFacts, Snapshot, WaitingCycle
from server.sources.models import Tree


def read_snapshot(*, free_slots: int | None = None) -> Snapshot:
    """What waits, which hosts there are, and what each tree had in the last day."""
    now = clock.now()
    priorities = dict(Tree.objects.order_by().values_list("pk", "priority"))
    builds = waiting_builds(priorities, now)
    machines = _machines()
    return Snapshot(
        now=now,
        sessions=waiting_sessions(priorities, now, [pk for pk, machine in machines.items() if machine.held]),
        builds=builds,
        cycles=_cycles(now),
        machines=machines,
        builders=_builders(),
        warm=warm_trees(now) if builds else {},
        weights={tree: weight_of(priority) for tree, priority in priorities.items()},
        on_machines=on_machines(now),
        on_builders=on_builders(now),
        free_slots=free_slots,
        all_slots=1 if free_slots is None else settings.LOCAL_SLOTS,
    )


def _cycles(now: datetime) -> tuple[WaitingCycle, ...]:
    wanted = list(PowerCycle.objects.filter(state=PowerCycleState.WANTED).values_list("pk", "machine_id", "created_at"))
    delays = delayed_cycles(now) if wanted else {}
    return tuple(
        WaitingCycle(pk, machine, created_at, *delays.get(pk, (created_at, 0))) for pk, machine, created_at in wanted
    )


def _machines() -> dict[int, MachineFacts]:
    held = Attempt.objects.filter(state__in=Attempt.ACTIVE, machine__isnull=False)
    busy = dict(held.order_by().values_list("machine_id", "key"))
    opened = PowerCycle.objects.filter(state__in=PowerCycle.OPEN).order_by()
    cycling = set(opened.values_list("machine_id", flat=True))
    health_fields = ("health", "health_reason", "health_hold")
    fields = ("pk", "name", "enabled", "state", "state_reason", "clock", "capabilities", *health_fields)
    return {
        pk: MachineFacts(
            id=pk,
            name=name,
            enabled=enabled,
            health=health,
            health_reason=health_reason,
            held=health == Machine.Health.QUARANTINED and hold != "",
            state=state,
            state_reason=state_reason,
            busy=busy.get(pk, ""),
            cycling=pk in cycling,
            alone=ticks == Machine.Clock.WALL,
            capabilities=frozenset(capabilities),
        )
        for pk, name, enabled, state, state_reason, ticks, capabilities, health, health_reason, hold in (
            Machine.objects.order_by().values_list(*fields)
        )
    }


def _builders() -> dict[int, BuilderFacts]:
    """The builders that this site's dispatcher reaches: this host itself, or the nodes of its controller."""
    here = Q(name=LOCAL_BUILDER)
    own = Builder.objects.filter(here if is_local_site() else ~here)
    return {
        builder.pk: BuilderFacts(
            id=builder.pk,
            name=builder.name,
            enabled=builder.enabled,
            health=builder.health,
            health_reason=builder.health_reason,
            state=builder.state,
            state_reason=builder.state_reason,
            capacity=builder.capacity,
            busy=builder.active,
            arches=frozenset(builder.arches),
            toolchains=frozenset(builder.toolchains),
        )
        for builder in own.annotate(active=builds_at_work())
    }
