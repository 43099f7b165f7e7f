"""The layout check: the same revisions, built with another placement of code. An effect that vanishes was placement."""

from collections.abc import Iterable, Sequence

from server.detection.findings.checks import Check, CheckOutcome, Name, ask_for
from server.detection.findings.vector import shorten
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.lab.models import Machine, Session, Trial, TrialState
from server.lab.trials.question import USUAL_LOOKS, Ask

_Cell = tuple[int, int, int, int]
# A claim that waits for its check goes before what nobody waits for.
_PRIORITY = 5


def layout_key(finding: Finding) -> str:
    return f"finding:{finding.pk}:layout"


def ask_for_layout(finding: Finding, trial: Trial, changed: Sequence[Comparison]) -> Trial | None:
    """The trial that measures the changed cells anew; None where no machine has another layout to build."""
    machines = {row.session.machine_id: row.session.machine for row in changed}
    able = [machine for machine in machines.values() if has_layout(machine)]
    if not able:
        return None
    return ask_for(
        finding,
        Ask(
            key=layout_key(finding),
            purpose=Trial.Purpose.LAYOUT,
            base=trial.base,
            patched=trial.patched,
            looks=USUAL_LOOKS,
            trace=finding.trace,
            series=finding.series,
            machines=tuple(sorted(able, key=lambda machine: machine.name)),
            benchmarks=cases_of(changed),
            layout=True,
            budget_seconds=trial.budget_seconds,
            priority=trial.priority + _PRIORITY,
        ),
    )


def has_layout(machine: Machine) -> bool:
    """Whether the machine's configuration has a variant with another layout."""
    return machine.config.layouts.filter(arch=machine.config.arch).exists()


def cases_of(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    """The cases, as trials name them."""
    return tuple(sorted({f"{row.case.benchmark.name}/{row.case.name}" for row in comparisons}))


def waiting_for(trial: Trial) -> list[Check]:
    names = ", ".join(trial.machines.order_by("name").values_list("name", flat=True))
    return [Check(Name.LAYOUT, CheckOutcome.PENDING, f"being measured with another code layout on {names}")]


def layout_checks(trial: Trial | None, changed: Sequence[Comparison]) -> list[Check]:
    """One answer for each machine that changed, from the layout trial, which is over; None: none was possible."""
    by_machine: dict[Machine, list[Comparison]] = {}
    for row in changed:
        by_machine.setdefault(row.session.machine, []).append(row)
    again = _measured_again(trial)
    machines = sorted(by_machine, key=lambda machine: machine.name)
    return [check for machine in machines for check in _checks(machine, by_machine[machine], again, trial)]


def _measured_again(trial: Trial | None) -> dict[_Cell, Comparison]:
    if trial is None or trial.state != TrialState.DONE:
        return {}
    rows = Comparison.objects.filter(session__trial=trial, session__state=Session.State.DONE)
    return {_cell(row): row for row in rows.select_related("session")}


def _cell(row: Comparison) -> _Cell:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def _checks(
    machine: Machine, changed: Sequence[Comparison], again: dict[_Cell, Comparison], trial: Trial | None
) -> list[Check]:
    """What vanished, if anything did; else what stood; else why nothing is known."""
    uarch = machine.uarch.name
    said = [(row, again.get(_cell(row))) for row in changed]
    gone = [row for row, other in said if other is not None and _vanished(row, other)]
    stood = [row for row, other in said if other is not None and other.verdict == row.verdict]
    found = []
    if gone:
        text = f"{_names(gone)} does not show on {machine.name} with another code layout: only how code is placed"
        ids = tuple(sorted(row.pk for row in gone))
        found.append(Check(Name.LAYOUT, CheckOutcome.FAILED, text, machine.name, uarch, ids))
    if stood:
        text = f"{_names(stood)} shows on {machine.name} with another code layout, too"
        found.append(Check(Name.LAYOUT, CheckOutcome.PASSED, text, machine.name, uarch))
    if not found:
        text = f"{machine.name}: {_why_unknown(machine, trial)}"
        found.append(Check(Name.LAYOUT, CheckOutcome.NOT_CHECKED, text, machine.name, uarch))
    return found


def _vanished(row: Comparison, other: Comparison) -> bool:
    """Unchanged, or changed the other way; what could not be told takes nothing away."""
    return other.verdict == Verdict.UNCHANGED or (other.verdict in CHANGES and other.verdict != row.verdict)


def _why_unknown(machine: Machine, trial: Trial | None) -> str:
    if not has_layout(machine):
        return "its kernel configuration has no variant with another code layout"
    if trial is None:
        return "not measured with another code layout"
    session = trial.sessions.filter(machine=machine).first()
    if trial.state != TrialState.DONE or session is None or session.state != Session.State.DONE:
        why = (session.reason if session else "") or trial.reason or TrialState(trial.state).label
        return f"not measured with another code layout: {why}"
    return "its boots with another code layout could not tell"


def _names(rows: Sequence[Comparison]) -> str:
    return shorten([f"{row.metric.name} of {row.case.name}" for row in rows])
