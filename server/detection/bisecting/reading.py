"""What the trial of a step says about the revision that it measured."""

from dataclasses import dataclass

from server.detection.bisecting.kernels import builds_for, does_not_build
from server.detection.models import Bisection, BisectionStep, Comparison, Verdict
from server.detection.scope import has_told, is_same_code
from server.lab.models import Boot, BootState, Session, Trial

Answer = BisectionStep.Answer


@dataclass(frozen=True)
class Reading:
    """`ratio` is patched / base in the target's metric; None where nothing was measured."""

    answer: str
    ratio: float | None
    reason: str


def read_trial(bisection: Bisection, trial: Trial) -> Reading:
    """BAD where the target cell moved as it did between the ends, GOOD where it did not, or moved the other way.

    A kernel that does not build, boot or run the case is skipped; what the lab itself could not measure is unsure,
    without a ratio.
    """
    session = trial.sessions.filter(machine=bisection.machine).first()
    if session is None or not has_told(session):
        return _not_measured(bisection, trial, session)
    if is_same_code(session) or session.base_build_id == session.patched_build_id:
        return Reading(Answer.GOOD, 1.0, "the same code as what it was measured against")
    target = bisection.target
    row = Comparison.objects.filter(
        session=session, case=target.case, metric=target.metric, core_type=target.core_type
    ).first()
    if row is None or row.ratio is None:
        return _silent(session, row)
    return _read(row, bisection.effect)


def _read(row: Comparison, effect: float) -> Reading:
    ratio = row.ratio
    assert ratio is not None
    if row.verdict == Verdict.UNCHANGED:
        return Reading(Answer.GOOD, ratio, f"at {ratio:.3f}x it is unchanged")
    if row.verdict == Verdict.INCONCLUSIVE:
        return Reading(Answer.UNSURE, ratio, f"at {ratio:.3f}x it cannot be told: {row.reason}")
    if (ratio > 1) == (effect > 0):
        return Reading(Answer.BAD, ratio, f"at {ratio:.3f}x it has the change")
    # Not half way to the bad end, which is all that is asked: between here and there it must be crossed.
    return Reading(Answer.GOOD, ratio, f"at {ratio:.3f}x it changed the other way")


def _silent(session: Session, row: Comparison | None) -> Reading:
    """A case that gave values with the base kernel alone fails for the other one's sake."""
    if row is not None and row.base_boots and not row.patched_boots:
        return Reading(Answer.SKIPPED, None, row.reason or "its case gives no values there")
    return Reading(Answer.UNSURE, None, (row and row.reason) or f"{session} gave no values of its case")


def _not_measured(bisection: Bisection, trial: Trial, session: Session | None) -> Reading:
    tree = trial.patched.tree_sha
    build = builds_for(bisection, {tree}).get(tree)
    if build is not None and does_not_build(build):
        return Reading(Answer.SKIPPED, None, f"does not build: {build.reason}")
    if session is not None and _does_not_boot(session):
        return Reading(Answer.SKIPPED, None, f"does not boot: {session.reason}")
    why = (session and session.reason) or trial.reason or f"its trial is {trial.state}"
    return Reading(Answer.UNSURE, None, f"not measured: {why}")


def _does_not_boot(session: Session) -> bool:
    """The machine and the base kernel work, and this kernel gave nothing in any boot that was tried."""
    boots = set(session.boots.values_list("arm", "state"))
    patched = {state for arm, state in boots if arm == Boot.Arm.PATCHED}
    works = (Boot.Arm.BASE, BootState.MEASURED) in boots
    return works and BootState.FAILED in patched and BootState.MEASURED not in patched
