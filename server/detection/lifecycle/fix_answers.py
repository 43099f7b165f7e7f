"""What a FIX trial says: whether the regressed microarchitectures are again where they were before the change."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from server.detection.lifecycle.checks import Check, Name, Outcome, add_check
from server.detection.lifecycle.fixing import regressed_comparisons
from server.detection.models import Comparison, Finding, Verdict
from server.detection.scope import is_same_code
from server.detection.vector import shorten
from server.lab.models import Trial, TrialState

_MENDED = (Verdict.UNCHANGED, Verdict.IMPROVED)
_SHORT = 12


def answer_fix(finding: Finding, trial: Trial) -> None:
    """Move the finding to FIXED if all of it is mended; else write down what is not.

    Runs in the transaction of the caller, who holds the finding.
    """
    revision = trial.patched
    doubts = _doubts(finding, trial)
    if still := [doubt.text for doubt in doubts if doubt.still_regressed]:
        text = f"{revision.sha[:_SHORT]} does not mend this: {shorten(still)}"
        add_check(finding, Check(Name.FIX, Outcome.FAILED, text, revision=revision.sha))
        return
    if doubts:
        text = f"whether {revision.sha[:_SHORT]} mends this is not known: {shorten([doubt.text for doubt in doubts])}"
        add_check(finding, Check(Name.FIX, Outcome.NOT_CHECKED, text, revision=revision.sha))
        return
    text = f"{revision.sha[:_SHORT]} mends this: no regression is left against {trial.base.sha[:_SHORT]}"
    add_check(finding, Check(Name.FIX, Outcome.PASSED, text, revision=revision.sha))
    if Finding.State.FIXED in Finding.NEXT.get(finding.state, frozenset()):
        finding.advance(Finding.State.FIXED, f"mended by {revision}", fix=revision)


@dataclass(frozen=True)
class _Doubt:
    """What is against a regression's being mended on one microarchitecture."""

    text: str
    still_regressed: bool = False


def _doubts(finding: Finding, trial: Trial) -> list[_Doubt]:
    """For each regressed microarchitecture, what is against its being mended."""
    if trial.state != TrialState.DONE:
        return [_Doubt(f"not measured: {trial.reason or TrialState(trial.state).label}")]
    by_uarch: dict[str, list[Comparison]] = defaultdict(list)
    for row in regressed_comparisons(finding):
        by_uarch[row.session.machine.uarch.name].append(row)
    if not by_uarch:
        return [_Doubt("nothing that regressed is known any more")]
    again = _measured(trial)
    same = {session.machine_id for session in trial.sessions.select_related("machine") if is_same_code(session)}
    return [doubt for uarch in sorted(by_uarch) if (doubt := _doubt(uarch, by_uarch[uarch], again, same))]


def _measured(trial: Trial) -> dict[tuple[int, int, int, int], Comparison]:
    rows = Comparison.objects.filter(session__trial=trial).select_related("session")
    return {_cell(row): row for row in rows}


def _cell(row: Comparison) -> tuple[int, int, int, int]:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def _doubt(
    uarch: str, regressed: Sequence[Comparison], again: dict[tuple[int, int, int, int], Comparison], same: set[int]
) -> _Doubt | None:
    """No cell may be regressed again, and the one that moved most must be seen to be mended."""
    said = [(row, again.get(_cell(row))) for row in regressed if row.session.machine_id not in same]
    still = [row for row, other in said if other is not None and other.verdict == Verdict.REGRESSED]
    if still:
        names = shorten([f"{row.metric.name} of {row.case.name}" for row in still])
        return _Doubt(f"on {uarch} still regressed: {names}", still_regressed=True)
    if not said:
        return None
    most, other = max(said, key=lambda pair: abs((pair[0].ratio or 1.0) - 1.0))
    if other is None or other.verdict not in _MENDED:
        return _Doubt(f"on {uarch} {most.metric.name} of {most.case.name} could not be told")
    return None
