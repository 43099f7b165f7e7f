"""A claim that a later measurement disproves: cells that do not show their change again are heard no more."""

from server.core.reasons import Because
from server.detection.branches.release import Why, invalidate
from server.detection.findings.checks import Check, CheckOutcome, Name, set_checks
from server.detection.findings.explanation import explain_finding
from server.detection.findings.result import remade, remake
from server.detection.findings.vector import heard, shorten
from server.detection.lifecycle.confirmation import CLAIMS
from server.detection.lifecycle.ledger import write_line
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.lab.models import Session, Trial

_STANDS = (
    Finding.State.CANDIDATE,
    Finding.State.CONFIRMED,
    Finding.State.BISECTING,
    Finding.State.REPORTED,
    Finding.State.ACCEPTED,
)
_Cell = tuple[int, int, int, int]


def disprove(finding: Finding, trial: Trial) -> bool:
    """Hear no more of the cells that `trial`, which asked the finding's question again, saw without their change.

    Where nothing else is left the finding is withdrawn. What could not be told again, or moved less, stands. Runs in
    the transaction of the caller, who holds the finding; False where nothing is disproved.
    """
    if finding.kind not in CLAIMS or finding.state not in _STANDS:
        return False
    gone = not_seen_again(finding, trial)
    if not gone:
        return False
    checks = _checks(gone, trial)
    others = [row for row in finding.checks if row.get("name") == Name.AGAIN]
    set_checks(finding, [Name.AGAIN], [*map(_kept, others), *checks])
    remake(finding)
    explain_finding(finding)
    said = "; ".join(check.text for check in checks)
    if finding.kind not in CLAIMS:
        return invalidate(finding, actor="", why=Why.NOISE, reason=said)
    write_line(finding, Because.NOT_SEEN_AGAIN(said), "")
    return True


def not_seen_again(finding: Finding, trial: Trial) -> list[Comparison]:
    """Cells that the finding claims, and that `trial` surely saw without their change."""
    again = {_cell(row): row for row in _measured(trial)}
    result = remade(finding)
    changed = [row for row in heard(result.comparisons, finding.checks) if row.verdict in CHANGES] if result else []
    return [row for row in changed if (other := again.get(_cell(row))) is not None and _is_gone(row, other)]


def _measured(trial: Trial) -> list[Comparison]:
    rows = Comparison.objects.filter(session__trial=trial, session__state=Session.State.DONE)
    return list(rows.select_related("session"))


def _cell(row: Comparison) -> _Cell:
    return row.session.machine_id, row.case_id, row.metric_id, row.core_type_id


def _is_gone(row: Comparison, other: Comparison) -> bool:
    """Changed the other way; or unchanged, and so surely that what was told lies outside of its interval."""
    if other.verdict in CHANGES:
        return other.verdict != row.verdict
    if other.verdict != Verdict.UNCHANGED or None in (row.ratio, other.ratio_low, other.ratio_high):
        return False
    assert row.ratio is not None
    assert other.ratio_low is not None
    assert other.ratio_high is not None
    return not other.ratio_low <= row.ratio <= other.ratio_high


def _checks(gone: list[Comparison], trial: Trial) -> list[Check]:
    by_machine: dict[int, list[Comparison]] = {}
    for row in gone:
        by_machine.setdefault(row.session.machine_id, []).append(row)
    found = []
    for rows in by_machine.values():
        machine = rows[0].session.machine
        names = shorten([f"{row.metric.name} of {row.case.name}" for row in rows])
        text = f"measured again by trial {trial.pk}, {names} does not show its change on {machine.name}"
        ids = tuple(sorted(row.pk for row in rows))
        found.append(Check(Name.AGAIN, CheckOutcome.FAILED, text, machine.name, machine.uarch.name, ids))
    return found


def _kept(row: dict[str, object]) -> Check:
    """What an earlier look took away stays away."""
    ids = row.get("comparisons")
    return Check(
        Name.AGAIN,
        CheckOutcome(str(row["outcome"])),
        str(row["text"]),
        str(row.get("machine", "")),
        str(row.get("uarch", "")),
        tuple(ids) if isinstance(ids, list) else (),
    )
