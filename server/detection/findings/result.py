"""The result of a trial: one verdict for each microarchitecture, the kind, the headline, and what has no result; and
writing it down.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from server.core.reasons import Because
from server.detection.findings.headline import headline
from server.detection.findings.vector import Gap, UarchVerdict, heard, kind_of, silenced, uarch_verdicts
from server.detection.models import Comparison, Finding, FindingVerdict
from server.detection.trials.judgement import case_notes, with_parts
from server.detection.trials.scope import Scope, is_same_code, sessions_with_one_image, trial_scope
from server.lab.models import Session, Trial

_KERNEL_FAULTS = (Because.KERNEL_FAILS, Because.KERNEL_MISSING)
# Of one session; a machine that lacks much has some reasons for hundreds of cases.
_MOST_REASONS = 20


def gaps_of(scope: Scope, comparisons: Sequence[Comparison]) -> list[Gap]:
    """Sessions that ended without a result or early, and cases that gave no value in any boot of the others."""
    gaps = [
        _gap(session, reason=session.reason or Session.State(session.state).label)
        for session in scope.sessions
        if session.state != Session.State.DONE
    ]
    done = {session.pk: session for session in scope.done if not is_same_code(session)}
    judged = {(row.session_id, row.case.benchmark.name, row.case.name) for row in comparisons}
    notes = case_notes(list(done.values()))
    missing = [note for note in notes if (note.session_id, note.benchmark, note.case) not in judged]
    # A machine without some node or program skips hundreds of cases for one reason, which must not hide all others.
    alike: dict[tuple[int, str], list[str]] = {}
    for note in missing:
        alike.setdefault((note.session_id, note.text), []).append(note.case)
    told: Counter[int] = Counter()
    for (session_id, text), cases in alike.items():
        told[session_id] += 1
        if told[session_id] <= _MOST_REASONS:
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            gaps.append(_gap(done[session_id], reason=f"{cases[0]}{more}: {text}"))
    for session_id, reasons in told.items():
        if reasons > _MOST_REASONS:
            gaps.append(_gap(done[session_id], reason=f"other cases: {reasons - _MOST_REASONS} more reasons"))
    silent = set(done) - {row.session_id for row in comparisons} - {note.session_id for note in missing}
    return gaps + [_gap(done[session_id], reason="no boot gave a value") for session_id in sorted(silent)]


def _gap(session: Session, *, reason: str) -> Gap:
    machine = session.machine
    return Gap(machine=machine.name, uarch=machine.uarch.name, reason=reason)


_CHANGES = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)


@dataclass(frozen=True)
class Result:
    """What the stored comparisons of a trial say together; `identical`: both kernels run the same code everywhere."""

    scope: Scope
    comparisons: tuple[Comparison, ...]
    gaps: tuple[Gap, ...]
    vector: tuple[UarchVerdict, ...]
    identical: bool

    @property
    def kind(self) -> Finding.Kind:
        return kind_of(self.vector)

    @property
    def changed(self) -> bool:
        return self.kind in _CHANGES

    @property
    def headline(self) -> str:
        return headline(self.vector, identical=self.identical)


def result_of(
    trial: Trial, *, checks: Sequence[Mapping[str, Any]] = (), virtual_too: bool | None = None
) -> Result | None:
    """The result from stored comparisons, as the site trusts it: `checks` (as in Finding.checks) that failed count.

    None while a session goes on, and where nothing may be judged (scope.trial_scope says when).
    """
    scope = trial_scope(trial, virtual_too=virtual_too)
    return None if scope is None else _result(scope, checks)


def write_result(finding: Finding, result: Result) -> None:
    """Set what the finding says, with its vector. Its state stays. Runs in the caller's transaction."""
    fields = {
        "kind": result.kind,
        "headline": result.headline,
        "virtual": result.scope.virtual,
        "identical": result.identical,
        "gaps": [asdict(gap) for gap in result.gaps],
    }
    Finding.objects.filter(pk=finding.pk).update(**fields, news=True)
    for name, value in fields.items():
        setattr(finding, name, value)
    FindingVerdict.objects.filter(finding=finding).delete()
    FindingVerdict.objects.bulk_create([component(finding, of) for of in result.vector])


def remade(finding: Finding) -> Result | None:
    """What the stored comparisons and the finding's checks say now; None where no trial judged it."""
    if finding.trial is None:
        return None
    return result_of(finding.trial, checks=finding.checks, virtual_too=finding.virtual)


def cells_of(finding: Finding) -> tuple[Comparison, ...] | None:
    """The stored comparisons that its result rests on, before any check; None where no trial judged it."""
    scope = None if finding.trial is None else trial_scope(finding.trial, virtual_too=finding.virtual)
    return None if scope is None else _comparisons(scope)


def remake(finding: Finding) -> Result | None:
    """Compute the finding's vector, kind and headline anew, with what its checks said, and store them."""
    result = remade(finding)
    if result is not None:
        write_result(finding, result)
    return result


def component(finding: Finding, of: UarchVerdict) -> FindingVerdict:
    """An unsaved row for one microarchitecture."""
    return FindingVerdict(
        finding=finding,
        uarch=of.uarch,
        verdict=of.verdict,
        reason=of.reason,
        comparison=of.moved[0].speaker if of.moved else None,
        mde=of.coverage.mde,
        mde_half=of.coverage.mde_half,
        told=of.coverage.told,
        untold=of.coverage.untold,
        blind=of.coverage.blind,
        missed=of.coverage.missed,
    )


def _result(scope: Scope, checks: Sequence[Mapping[str, Any]]) -> Result:
    comparisons = _comparisons(scope)
    gaps = gaps_of(scope, comparisons)
    same_code = [session for session in scope.done if is_same_code(session)]
    vector = uarch_verdicts(
        (session.machine.uarch for session in scope.sessions),
        heard(comparisons, checks),
        gaps,
        same_code={session.machine.uarch_id for session in same_code},
        silenced=silenced(comparisons, checks),
        broken={session.machine.uarch_id for session in scope.sessions if session.reason_code in _KERNEL_FAULTS},
    )
    measured = [session for session in scope.done if not is_same_code(session)]
    identical = bool(scope.done) and len(sessions_with_one_image(measured)) == len(measured)
    return Result(scope, comparisons, tuple(gaps), tuple(vector), identical)


def _comparisons(scope: Scope) -> tuple[Comparison, ...]:
    rows = Comparison.objects.filter(session__in=scope.done)
    found = rows.order_by("session_id", "case__name", "case_id", "metric__name", "core_type__name")
    return tuple(with_parts(found, scope.sessions))
