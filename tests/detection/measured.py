"""Series and trials whose sessions are over, with the values of their boots."""

import random
from collections.abc import Iterable, Mapping
from typing import Any

from server.detection.models import Finding
from server.detection.on_trial_over import answer_trial
from server.detection.trials.look import look_at_trial
from server.lab.models import Boot, Machine, Session, Trial
from server.sources.models import Series
from tests.builders import (
    EPOCH,
    build_case,
    build_machine,
    build_measurements,
    build_metric,
    build_session,
    build_trial,
    build_trial_session,
)

# Values of the boots of one arm: exactly equal ones, as under instruction counting, or spread around a level.
Levels = tuple[float, float]
Measured = Mapping[Machine, Mapping[str, Levels]]

STEADY = (2168.0, 2168.0)
SLOWER = (5762.0, 9871.0)
FASTER = (5762.0, 4100.0)
# Boots a side at which trials are looked at; the first is one at which a change is believed.
LOOKS = (6, 8, 12, 16)


def measured_session(
    series: Series,
    machine: Machine,
    cases: Mapping[str, Levels],
    *,
    spread: float = 0.0,
    boots_per_side: int = 4,
    **fields: Any,
) -> Session:
    """A done session of the series' trial. `spread` moves the boots of each arm up and down by that fraction."""
    session = build_session(series, machine, state=Session.State.DONE, boots_per_side=boots_per_side, **fields)
    measure_boots(session, session.boots.all(), cases, spread=spread)
    return session


def measured_trial(
    series: Series | None,
    measured: Measured,
    *,
    spread: float = 0.0,
    looks: tuple[int, ...] = LOOKS,
    boots: int | None = None,
    purpose: str = Trial.Purpose.SERIES,
    **fields: Any,
) -> Trial:
    """A trial with a session on each machine that is done with its first look (`boots` a side); nobody looked yet."""
    if series is not None:
        fields.setdefault("trace", series.trace)
    trial = build_trial(
        purpose=purpose,
        series=series,
        state=Trial.State.MEASURING,
        machines=measured,
        looks=list(looks),
        **fields,
    )
    for machine, cases in measured.items():
        session = build_trial_session(trial, machine, state=Session.State.DONE, looks=[boots or looks[0], *looks[1:]])
        measure_boots(session, session.boots.all(), cases, spread=spread)
    return trial


def play(trial: Trial, measured: Measured, *, spread: float = 0.0, visits: int = 20) -> Trial:
    """Look at the trial and measure what it asks for, until it is over; at most so many visits."""
    for _ in range(visits):
        if look_at_trial(trial_id=trial.pk):
            break
        for session in trial.sessions.filter(state=Session.State.PLANNED):
            visit(session, measured[session.machine], spread=spread)
    trial.refresh_from_db()
    return trial


def judge_series(*, series_id: int) -> Finding | None:
    """The finding of the series; what the tasks do for its trial is done now, as far as it is time for it."""
    trial = Trial.objects.filter(series=series_id, purpose=Trial.Purpose.SERIES).first()
    if trial is not None and look_at_trial(trial_id=trial.pk):
        answer_trial(trial_id=trial.pk)
    return Finding.objects.filter(series=series_id).first()


def visit(session: Session, cases: Mapping[str, Levels], *, spread: float = 0.0) -> None:
    """All boots of the session that are planned give values; the session is done."""
    for boot in session.boots.filter(state=Boot.State.PLANNED):
        build = session.base_build if boot.arm == Boot.Arm.BASE else session.patched_build
        proof: dict[str, Any] = {
            "boot_id": f"{boot.pk:08x}-1111-4000-8000-{boot.pk:012x}",
            "build_id": build.build_id,
        }
        boot.advance(Boot.State.MEASURED, started_at=EPOCH, ended_at=EPOCH, **proof)
        measure(boot, cases, spread=spread)
    Session.objects.filter(pk=session.pk).update(state=Session.State.DONE)


def measure(boot: Boot, cases: Mapping[str, Levels], *, spread: float = 0.0) -> None:
    """Values of one boot: half of them up by `spread`, half of them down."""
    measure_boots(boot.session, [boot], cases, spread=spread)


def measure_boots(session: Session, boots: Iterable[Boot], cases: Mapping[str, Levels], *, spread: float = 0.0) -> None:
    metric, rows = build_metric(resolution=1.0), {name: build_case(name) for name in cases}
    measured = []
    for boot in boots:
        for name, (base, patched) in cases.items():
            level = base if boot.arm == Boot.Arm.BASE else patched
            # The parity of half the position differs between the boots of one arm.
            value = level * (1 + spread * (1 if boot.position // 2 % 2 else -1))
            measured.append((boot, rows[name], [3 * value, *[value] * 5]))
    build_measurements(session, measured, metric)


def scatter(boot: Boot, cases: Mapping[str, Levels], *, sd: float, seed: int = 0) -> None:
    """Values of one boot with normal noise between boots, from machine, case, arm and position alone."""
    measured = []
    for name, (base, patched) in cases.items():
        level = base if boot.arm == Boot.Arm.BASE else patched
        numbers = random.Random(f"{seed} {boot.session.machine.name} {name} {boot.arm} {boot.position}")  # noqa: S311 (noise)
        value = level * (1 + numbers.gauss(0, sd))
        measured.append((boot, build_case(name), [value * (1 + numbers.gauss(0, sd / 10)) for _ in range(6)]))
    build_measurements(boot.session, measured, build_metric(resolution=0.0))


def failed_session(series: Series, machine: Machine, reason: str) -> Session:
    return build_session(series, machine, state=Session.State.FAILED, reason=reason)


def physical(name: str, uarch: str, **fields: Any) -> Machine:
    return build_machine(name, uarch, virtual=False, **fields)


def virtual(name: str, uarch: str, **fields: Any) -> Machine:
    return build_machine(name, uarch, virtual=True, **fields)
