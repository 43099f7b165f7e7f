"""Checks before any claim: a change stays a candidate until its machines, its base and the layout are looked at."""

from collections.abc import Sequence

from server.detection.explaining import explain_finding
from server.detection.lifecycle.checks import Check, Name, Outcome, checks_named, set_checks
from server.detection.lifecycle.confirming import confirm
from server.detection.lifecycle.invalidating import Why, invalidate
from server.detection.lifecycle.layout import ask_for_layout, layout_checks, layout_key, waiting_for
from server.detection.lifecycle.machine_checks import base_checks, machine_checks
from server.detection.models import Comparison, Finding
from server.detection.models.comparisons import CHANGES
from server.detection.results import Result, remade, remake
from server.lab.models import Session, Trial

CLAIMS = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)
_CHECKED = (Name.CODE, Name.MACHINE, Name.BASE, Name.LAYOUT)
_CONFIRMED = "judged from interleaved boots"


def begin_checks(finding: Finding) -> None:
    """Ask for what must be known before the claim is made; one that claims no change only needs machines to rely on.

    Runs in the transaction of the caller, who holds the finding. Harmless to repeat.
    """
    if finding.state != Finding.State.CANDIDATE:
        return
    ill = _hear_no_ill_machine(finding) if finding.kind not in CLAIMS else []
    if finding.kind not in CLAIMS:
        confirm(finding, _CONFIRMED)
        return
    changed = _changed(remade(finding))
    layout = _layout_trial(finding, changed)
    if layout is not None and layout.state not in Trial.FINAL:
        set_checks(finding, _CHECKED, [*ill, *waiting_for(layout)])
        finding.note("its layout is being checked")
        return
    conclude_checks(finding)


def conclude_checks(finding: Finding) -> None:
    """Write down what the checks say, judge anew without what they took away, and confirm or withdraw the claim.

    Runs in the transaction of the caller, who holds the finding; the layout trial, if there is one, is over.
    """
    if finding.state != Finding.State.CANDIDATE:
        return
    # What earlier checks took away is asked again.
    set_checks(finding, _CHECKED, ())
    layout = Trial.objects.filter(key=layout_key(finding)).first()
    set_checks(finding, _CHECKED, _answers(finding, remade(finding), layout))
    # Anew in any case: what was taken away before may be heard again.
    remake(finding)
    explain_finding(finding)
    taken_away = _taken_away(finding)
    if finding.kind in CLAIMS or taken_away is None:
        confirm(finding, _CONFIRMED)
        return
    why, reason = taken_away
    invalidate(finding, actor="", why=why, reason=reason)


def _hear_no_ill_machine(finding: Finding) -> list[Check]:
    """Judge anew without machines that cannot be relied on: "no change" is a claim, too, and so is what they hid."""
    ill = ill_machines(remade(finding))
    if ill:
        set_checks(finding, _CHECKED, ill)
        remake(finding)
        explain_finding(finding)
    return ill


def ill_machines(result: Result | None) -> list[Check]:
    """Failed checks of all machines that the result heard."""
    measured = _sessions(result.comparisons) if result else []
    return [check for check in machine_checks(measured) if check.outcome == Outcome.FAILED]


def _changed(result: Result | None) -> list[Comparison]:
    """The comparisons that make the claim."""
    return [row for row in result.comparisons if row.verdict in CHANGES] if result else []


def _layout_trial(finding: Finding, changed: Sequence[Comparison]) -> Trial | None:
    """The layout trial, asked for now if it is not yet; machines that cannot be relied on have no part in it."""
    if finding.trial is None:
        return None
    ill = {check.machine for check in machine_checks(_sessions(changed)) if check.outcome == Outcome.FAILED}
    fit = [row for row in changed if row.session.machine.name not in ill]
    return ask_for_layout(finding, finding.trial, fit)


def _answers(finding: Finding, result: Result | None, layout: Trial | None) -> list[Check]:
    changed = _changed(result)
    sessions = _sessions(changed)
    base = base_checks(finding.trial) if finding.trial is not None else []
    asked = machine_checks(sessions)
    # One that saw no change, or could not tell, may contradict the others.
    others = [check for check in ill_machines(result) if check not in asked]
    return [*_code_checks(sessions), *asked, *others, *base, *layout_checks(layout, changed)]


def _code_checks(sessions: Sequence[Session]) -> list[Check]:
    """Equal kernels make no claim (doubting.py); here it is said that these were told apart."""
    pairs = [(session.base_build, session.patched_build) for session in sessions]
    if not pairs:
        return []
    if all(base.text_hash and patched.text_hash and base.text_hash != patched.text_hash for base, patched in pairs):
        return [Check(Name.CODE, Outcome.PASSED, "the kernels' code differs")]
    if all(base.kernel_hash and base.kernel_hash != patched.kernel_hash for base, patched in pairs):
        return [Check(Name.CODE, Outcome.PASSED, "the kernels differ, on some machines in their data alone")]
    return [Check(Name.CODE, Outcome.NOT_CHECKED, "not every build told a hash of its code")]


def _sessions(changed: Sequence[Comparison]) -> list[Session]:
    return list({row.session_id: row.session for row in changed}.values())


def _taken_away(finding: Finding) -> tuple[Why, str] | None:
    """Which failed check silences what the finding claimed, and in whose words; None where none does."""
    for name, why in ((Name.LAYOUT, Why.LAYOUT), (Name.MACHINE, Why.MACHINE)):
        failed = [str(row["text"]) for row in checks_named(finding, name) if row["outcome"] == Outcome.FAILED]
        if failed:
            return why, "; ".join(failed)
    return None
