"""Findings for tests of their life: trials whose cells are judged as each test says, without boots to compute from."""

from collections.abc import Mapping
from typing import Any

from server.builds.models import KernelConfig
from server.core import clock
from server.detection.findings.result import result_of, write_result
from server.detection.models import Finding
from server.lab.models import Machine, Session, Trial
from server.sources.models import Series
from tests.builders import build_case, build_comparison, build_series, build_trial, build_trial_session

UP, DOWN, SAME, UNSURE = "regressed", "improved", "unchanged", "inconclusive"
# By machine and case.
Verdicts = Mapping[Machine, Mapping[str, str]]


def judged(series: Series | None, verdicts: Verdicts, *, purpose: str = Trial.Purpose.SERIES, **fields: Any) -> Trial:
    """A trial that is over, with its comparisons; nobody took up its answer."""
    if series is not None:
        fields.setdefault("trace", series.trace)
    trial = build_trial(
        purpose=purpose,
        series=series,
        state=Trial.State.DONE,
        machines=verdicts,
        looks=[2],
        **fields,
    )
    write_down(trial, verdicts)
    return trial


def write_down(trial: Trial, verdicts: Verdicts) -> None:
    """A session on each machine that is done and concluded, with its comparisons."""
    for machine, cases in verdicts.items():
        session = build_trial_session(trial, machine, state=Session.State.DONE, looks=[2], concluded_at=clock.now())
        for name, verdict in cases.items():
            build_comparison(session, verdict, case=build_case(name))


def candidate(verdicts: Verdicts, series: Series | None = None, **fields: Any) -> Finding:
    """The finding of a series before any check, written as the answer to its trial is."""
    series = series or build_series()
    trial = judged(series, verdicts)
    return as_judged(trial, series=series, **fields)


def as_judged(trial: Trial, *, state: str = Finding.State.CANDIDATE, **fields: Any) -> Finding:
    """A finding that says what its trial says."""
    finding = Finding.objects.create(
        trial=trial,
        state=state,
        kind=Finding.Kind.INCONCLUSIVE,
        headline="",
        virtual=False,
        trace=trial.trace,
        **fields,
    ).record_creation()
    result = result_of(trial)
    assert result is not None
    write_result(finding, result)
    return finding


def give_layout(machine: Machine) -> KernelConfig:
    """Another code layout for the machine's configuration."""
    config = machine.config
    return KernelConfig.objects.get_or_create(
        name=f"{config.name}-aligned", defaults={"arch": config.arch, "layout_of": config}
    )[0]


def quarantine(machine: Machine, reason: str) -> None:
    Machine.objects.filter(pk=machine.pk).update(health=Machine.Health.QUARANTINED, health_reason=reason)
