"""Series whose sessions are over, with the values of their boots."""

from collections.abc import Mapping
from typing import Any

from server.lab.models import Boot, Machine, Session
from server.sources.models import Series
from tests.builders import build_case, build_machine, build_measurement, build_metric, build_session

# Values of the boots of one arm: exactly equal ones, as under instruction counting, or spread around a level.
Levels = tuple[float, float]

STEADY = (2168.0, 2168.0)
SLOWER = (5762.0, 9871.0)
FASTER = (5762.0, 4100.0)


def measured_session(
    series: Series,
    machine: Machine,
    cases: Mapping[str, Levels],
    *,
    spread: float = 0.0,
    boots_per_side: int = 4,
    **fields: Any,
) -> Session:
    """A session that is done. `spread` moves the boots of each arm up and down by that fraction."""
    session = build_session(series, machine, state=Session.State.DONE, boots_per_side=boots_per_side, **fields)
    metric = build_metric(resolution=1.0)
    for boot in session.boots.all():
        for name, (base, patched) in cases.items():
            level = base if boot.arm == Boot.Arm.BASE else patched
            # The parity of half the position differs between the boots of one arm.
            value = level * (1 + spread * (1 if boot.position // 2 % 2 else -1))
            build_measurement(boot, [3 * value, *[value] * 5], build_case(name), metric)
    return session


def failed_session(series: Series, machine: Machine, reason: str) -> Session:
    return build_session(series, machine, state=Session.State.FAILED, reason=reason)


def physical(name: str, uarch: str, **fields: Any) -> Machine:
    return build_machine(name, uarch, virtual=False, **fields)


def virtual(name: str, uarch: str, **fields: Any) -> Machine:
    return build_machine(name, uarch, virtual=True, **fields)
