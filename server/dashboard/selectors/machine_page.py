"""Everything that the page of one machine tells."""

from dataclasses import dataclass

from django.db.models import Q

from server.dashboard.facts import Fact, readable_facts
from server.dashboard.selectors.attempts import AttemptRow, attempt_rows, unclaimed_rows
from server.dashboard.selectors.host_actions import Actions, actions_of
from server.dashboard.selectors.hosts import (
    Audit,
    NodeRow,
    PowerCycleRow,
    audit_of,
    node_of,
    power_cycles_of,
)
from server.dashboard.selectors.machines import MachineRow, SessionRow, busy_machines, machine_row, session_rows
from server.detection.noise.selectors import (
    AlarmRate,
    NoiseRow,
    QuestionRow,
    alarm_rate,
    noise_of_machine,
    questions_of,
)
from server.lab.facts import facts_of_machine
from server.lab.hardware import HardwareChange, latest_changes
from server.lab.models import Attempt, CoreType, Machine
from server.lab.physical import Standing, standing
from server.reports.queue import Queue, queue_of

_LATEST = 25
# Older changes of a machine stay in the history of states.
_CHANGES = 5
_CORE_TYPES = 16
# The others are in the API.
_MOST_NOISE = 200


@dataclass(frozen=True, slots=True)
class MachineNoise:
    """What it shows between equal kernels, and what people should look at."""

    alarms: AlarmRate
    cells: tuple[NoiseRow, ...]
    unshown: int
    questions: tuple[QuestionRow, ...]


@dataclass(frozen=True, slots=True)
class MachinePage:
    row: MachineRow
    standing: Standing
    config: str
    toolchain: str
    boots_per_side: int
    health_build: int | None
    safe: bool | None
    core_types: tuple[tuple[str, str], ...]
    options: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    changes: tuple[HardwareChange, ...]
    actions: Actions
    audit: Audit
    node: NodeRow | None
    power_cycles: tuple[PowerCycleRow, ...]
    active: tuple[AttemptRow, ...]
    unclaimed: tuple[AttemptRow, ...]
    waiting: Queue
    sessions: tuple[SessionRow, ...]
    noise: MachineNoise


def machine_page(name: str, *, logs: bool) -> MachinePage | None:
    named = Machine.objects.select_related("uarch", "config", "toolchain").defer("config__fragment")
    machine = named.filter(name=name).first()
    if machine is None:
        return None
    waiting = queue_of(machine)
    active = Q(session__machine=machine) | Q(power_cycle__machine=machine)
    return MachinePage(
        row=machine_row(machine, busy_machines().get(machine.pk), waiting.total),
        standing=standing(machine),
        config=machine.config.name,
        toolchain=machine.toolchain.name,
        boots_per_side=machine.boots_per_side,
        health_build=machine.health_build_id,
        safe=machine.safe,
        core_types=tuple(CoreType.objects.filter(machine=machine).values_list("name", "cpus")[:_CORE_TYPES]),
        options=readable_facts(machine.driver_options),
        facts=readable_facts(facts_of_machine(machine)),
        changes=latest_changes(machine, limit=_CHANGES),
        actions=actions_of(machine),
        audit=audit_of(machine),
        node=node_of(machine),
        power_cycles=power_cycles_of(machine),
        active=attempt_rows(active & Q(state__in=Attempt.ACTIVE), logs=logs),
        unclaimed=unclaimed_rows(Q(machine=machine)) if logs else (),
        waiting=waiting,
        sessions=session_rows(Q(machine=machine), limit=_LATEST),
        noise=MachineNoise(alarm_rate(machine), *noise_of_machine(machine, _MOST_NOISE), questions_of(machine)),
    )
