"""A/A trials that are over, with what they showed."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from server.builds.models import Build
from server.detection.models import Comparison, Verdict
from server.lab.models import Machine, Session, Trial
from server.results.models import Case
from tests.builders import EPOCH, build_build, build_case, build_metric, build_trial

NIGHT = timedelta(hours=24)
CASES = tuple(f"case-{letter}" for letter in "abcdef")
_serial = itertools.count(1)


def shown_trial(machine: Machine, logs: Mapping[str, float], *, night: int = 0, **fields: Any) -> Trial:
    """An A/A trial that is done: `logs` are the logarithms of its ratios by case, judged in that night."""
    kernel = Build.objects.first() or build_build()
    trial = build_trial(
        kernel.revision,
        kernel.revision,
        purpose=Trial.Purpose.NOISE,
        state=Trial.State.DONE,
        machines=[machine],
        key=f"shown:{next(_serial)}",
    )
    session = equal_session(machine, kernel, trial=trial, purpose=Session.Purpose.TRIAL)
    show(session, logs, at=EPOCH + night * NIGHT, **fields)
    return trial


def equal_session(machine: Machine, kernel: Build, **fields: Any) -> Session:
    """A session of one kernel on both sides that is done; without boots, since its comparisons are given."""
    return Session.objects.create(
        machine=machine, base_build=kernel, patched_build=kernel, state=Session.State.DONE, **fields
    )


def show(session: Session, logs: Mapping[str, float], *, at: datetime, **fields: Any) -> None:
    """Comparisons of that session with these ratios, judged then; unchanged unless told otherwise."""
    cases = {case.name: case for case in Case.objects.filter(name__in=logs)}
    metric, core_type = build_metric(), session.machine.core_types.get()
    usual = {"base_mean": 1000.0, "base_sd": 5.0, "patched_mean": 1000.0, "patched_sd": 6.0, "p_value": 0.5}
    counts = {"base_boots": 4, "patched_boots": 4, "family_size": 1, "min_effect": 0.01, "mde": 0.012}
    rows = [
        Comparison(
            session=session,
            case=cases.get(name) or build_case(name),
            metric=metric,
            core_type=core_type,
            ratio=math.exp(log),
            **{"verdict": Verdict.UNCHANGED, **usual, **counts, **fields},
        )
        for name, log in logs.items()
    ]
    Comparison.objects.bulk_create(rows)
    Comparison.objects.filter(session=session).update(computed_at=at)


def nights(number: int, *, times: float = 1.0, seed: int = 0, cases: Sequence[str] = CASES) -> list[dict[str, float]]:
    """What a machine shows in so many nights: normal changes of 0.3 % a cell, `times` as large."""
    numbers = random.Random(seed)  # noqa: S311 (noise, no secret)
    return [{case: times * numbers.gauss(0, 0.003) for case in cases} for _ in range(number)]
