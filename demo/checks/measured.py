"""Sessions, boots and measurements."""

from collections import Counter
from collections.abc import Iterator, Sequence

from demo.checks.facts import Check, check
from demo.lab import MachinePlan
from demo.outcomes import Outcome
from server.detection.scope import is_same_code
from server.lab.models import Boot, Session
from server.results.models import Case, Measurement, Metric
from server.sources.models import Series


def measured_checks(series: Series, outcome: Outcome, machines: Sequence[MachinePlan]) -> list[Check]:
    sessions = {session.machine.name: session for session in series.sessions.select_related("machine")}
    boots = list(
        Boot.objects.filter(session__series=series, state=Boot.State.MEASURED).select_related(
            "session__machine", "session__base_build", "session__patched_build"
        )
    )
    booted = [machine for machine in machines if not _is_unbooted(sessions.get(machine.name))]
    planned = Boot.objects.filter(session__series=series).count()
    values = sum(len(row.values) for row in Measurement.objects.filter(boot__in=boots))
    return [
        check("sessions done", _session_faults(sessions, machines), f"{len(machines)} machines"),
        check("every boot measured", _boot_faults(boots, booted, planned), f"{len(boots)} of {planned} boots"),
        check("boots are proved", _proof_faults(boots, outcome), f"{len({boot.boot_id for boot in boots})} boot ids"),
        check("measurements stored", _measurement_faults(boots), f"{values} values"),
    ]


def _session_faults(sessions: dict[str, Session], machines: Sequence[MachinePlan]) -> Iterator[str]:
    for machine in machines:
        session = sessions.get(machine.name)
        if session is None:
            yield f"no session on {machine.name}"
        elif session.state != Session.State.DONE:
            yield f"the session on {machine.name} is {session.state}: {session.reason}"
        elif session.machine.clock != machine.clock:
            yield f"{machine.name} counts by {session.machine.clock}, not by {machine.clock}"


def _is_unbooted(session: Session | None) -> bool:
    return session is not None and is_same_code(session)


def _boot_faults(boots: Sequence[Boot], machines: Sequence[MachinePlan], planned: int) -> Iterator[str]:
    """Cells that the first boots leave open get more of them, so that there may be more than a machine begins with."""
    if len(boots) != planned:
        yield f"{len(boots)} of {planned} boots measured"
    counted = Counter((boot.session.machine.name, boot.arm) for boot in boots)
    for machine in machines:
        for arm in Boot.Arm.values:
            found = counted[machine.name, arm]
            if found < machine.boots_per_side:
                yield f"{found} of at least {machine.boots_per_side} {arm} boots measured on {machine.name}"


def _proof_faults(boots: Sequence[Boot], outcome: Outcome) -> Iterator[str]:
    repeated = [boot_id for boot_id, times in Counter(boot.boot_id for boot in boots).items() if times > 1]
    if repeated:
        yield f"{len(repeated)} boot ids stand more than once"
    for boot in boots:
        build = boot.session.base_build if boot.arm == Boot.Arm.BASE else boot.session.patched_build
        if boot.build_id != build.build_id:
            yield f"{boot} ran the kernel {boot.build_id[:12]}, not {build.build_id[:12]}"
    ran = {arm: {boot.build_id for boot in boots if boot.arm == arm} for arm in Boot.Arm.values}
    if not outcome.same_image and ran[Boot.Arm.BASE.value] & ran[Boot.Arm.PATCHED.value]:
        yield "base and patched boots ran the same kernel"


def _measurement_faults(boots: Sequence[Boot]) -> Iterator[str]:
    wanted = [
        (case, metric.pk, f"{case.name} {metric.name}")
        for case in Case.objects.filter(enabled=True).select_related("benchmark")
        for metric in Metric.objects.filter(benchmark=case.benchmark_id)
    ]
    if not wanted:
        yield "no benchmark is registered"
    stored: dict[tuple[int, int, int], int] = {
        (row.boot_id, row.case_id, row.metric_id): len(row.values) for row in Measurement.objects.filter(boot__in=boots)
    }
    for boot in boots:
        chosen = boot.session.machine.cases
        for case, metric, name in wanted:
            found = stored.get((boot.pk, case.pk, metric), 0)
            if (not chosen or str(case) in chosen) and found != case.runs:
                yield f"{boot} has {found} of {case.runs} values of {name}"
