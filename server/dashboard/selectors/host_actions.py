"""What a person may do to a machine or a builder now."""

from dataclasses import dataclass
from enum import StrEnum

from server.dashboard.selectors.people import people_with
from server.lab.care import can_power_cycle
from server.lab.models import Builder, Host, Machine
from server.lab.physical import Kind, kind_of

MACHINE_PERMISSION = "lab.change_machine"
BUILDER_PERMISSION = "lab.change_builder"


class Action(StrEnum):
    QUARANTINE = "quarantine"
    RELEASE = "release"
    CHECK = "check"
    POWER_CYCLE = "power-cycle"
    MAINTENANCE = "maintenance"
    RETIRE = "retire"
    PHYSICAL = "physical"
    DOUBT = "doubt"


_LABELS = {
    Action.QUARANTINE: "Quarantine",
    Action.RELEASE: "Release",
    Action.CHECK: "Check: a health session first",
    Action.POWER_CYCLE: "Switch off and on",
    Action.MAINTENANCE: "Take into your hands",
    Action.RETIRE: "Retire for good",
    Action.PHYSICAL: "It is physical, on my word",
    Action.DOUBT: "Take back that it is physical",
}
_SICK = frozenset({Host.Health.QUARANTINED, Host.Health.MAINTENANCE})


@dataclass(frozen=True, slots=True)
class Actions:
    """`choices` are (value, label) of what makes sense now; `people` counts those who may, `permission` is the right
    that they have.
    """

    choices: tuple[tuple[str, str], ...]
    people: int
    permission: str


def actions_of(host: Machine | Builder) -> Actions:
    permission = MACHINE_PERMISSION if isinstance(host, Machine) else BUILDER_PERMISSION
    # What was retired by mistake comes back by the same way as anything else.
    wanted = [Action.RELEASE] if host.health == Host.Health.RETIRED else _sensible(host)
    return Actions(
        choices=tuple((action.value, _LABELS[action]) for action in wanted),
        people=people_with(permission),
        permission=permission,
    )


def _sensible(host: Machine | Builder) -> list[Action]:
    found = []
    if host.health != Host.Health.QUARANTINED:
        found.append(Action.QUARANTINE)
    if host.health in _SICK:
        found.append(Action.RELEASE)
    if isinstance(host, Machine) and host.enabled and host.health != Host.Health.MAINTENANCE:
        found.append(Action.CHECK)
    if isinstance(host, Machine) and host.state != Host.State.POWER_CYCLING and can_power_cycle():
        found.append(Action.POWER_CYCLE)
    if host.health != Host.Health.MAINTENANCE:
        found.append(Action.MAINTENANCE)
    return [*found, *(_vouching(host) if isinstance(host, Machine) else ()), Action.RETIRE]


def _vouching(machine: Machine) -> list[Action]:
    if machine.physical_at is not None:
        return [Action.DOUBT]
    return [Action.PHYSICAL] if kind_of(machine) is Kind.UNKNOWN else []
