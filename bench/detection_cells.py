"""A trial of as many cells as are asked for, measured and not looked at; and the time its judgement takes."""

import time

import numpy as np

from server.detection.looking import look_at_trial
from server.detection.models import Comparison
from server.lab.models import Boot, Machine, Session, Trial
from server.results.models import Case, Measurement
from tests.builders import build_case, build_machine, build_metric, build_trial, build_trial_session

_MACHINES, _BOOTS, _RUNS, _WARMUP = 5, 4, 6, 1
_BOOT_SD, _RUN_SD = 0.01, 0.01


def judged_in(cells: int) -> float:
    """Seconds from the stored boots of a new trial to its comparisons, all of them one family."""
    machines = [build_machine(f"judged-{number}", f"uarch-{number}", virtual=False) for number in range(_MACHINES)]
    cases = [build_case(f"judged-{number}", runs=_RUNS, warmup=_WARMUP) for number in range(cells // _MACHINES)]
    trial = build_trial(purpose=Trial.Purpose.HEAD, state=Trial.State.MEASURING, machines=machines, looks=[_BOOTS])
    noise = np.random.default_rng(1)
    for machine in machines:
        _measure(trial, machine, cases, noise)
    begun = time.perf_counter()
    over = look_at_trial(trial_id=trial.pk)
    spent = time.perf_counter() - begun
    stored = Comparison.objects.filter(session__trial=trial).count()
    if not over or stored != len(machines) * len(cases):
        raise SystemExit(f"{stored} comparisons of {len(machines) * len(cases)} cells were stored")
    return spent


def _measure(trial: Trial, machine: Machine, cases: list[Case], noise: np.random.Generator) -> None:
    session = build_trial_session(trial, machine, state=Session.State.DONE)
    metric, core_type = build_metric(), machine.core_types.get(name="all")
    for boot in Boot.objects.filter(session=session):
        levels = np.exp(noise.normal(np.log(1000), _BOOT_SD, len(cases)))
        values = levels[:, None] * np.exp(noise.normal(0, _RUN_SD, (len(cases), _RUNS)))
        Measurement.objects.bulk_create(
            Measurement(boot=boot, case=case, metric=metric, core_type=core_type, values=own.tolist(), warmup=_WARMUP)
            for case, own in zip(cases, values, strict=True)
        )
