"""From suspicion to a claim: explained, its machines, base and layout checked (an effect that vanishes with another
placement of code was placement), then confirmed.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from django.db.models import Max, Min, Q

from server.core.models import Transition
from server.core.reasons import Because, Reason
from server.core.tasks import enqueue
from server.detection.bisection.rounds import begin
from server.detection.branches.release import Why, invalidate, join_same_change, release_others
from server.detection.findings.checks import Check, CheckOutcome, Name, ask_for, checks_named, set_checks
from server.detection.findings.explanation import explain_finding
from server.detection.findings.result import Result, remade, remake
from server.detection.findings.vector import shorten
from server.detection.findings.versions import link_to_previous, supersede_older
from server.detection.models import Comparison, Finding, Verdict
from server.detection.models.finding import CHANGES
from server.detection.noise.questions import ask_about_disagreements, base_drift
from server.lab.hosts.probes import changes_since
from server.lab.models import LATE, Machine, Session, Trial, TrialState
from server.lab.trials.question import USUAL_LOOKS, Ask
from server.sources.models import SeriesState

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


def machine_checks(sessions: Iterable[Session]) -> list[Check]:
    """One answer about each session's machine.

    A claim falls with a machine that is quarantined, or was while it measured, or whose hardware or firmware is another
    since. What is in somebody's hands, or waits for a look of its own, says nothing against what it measured.
    """
    chosen = sorted(sessions, key=lambda session: session.machine.name)
    spans = _spans(chosen)
    return [_check(session.machine, *spans[session.pk]) for session in chosen]


def base_checks(trial: Trial) -> list[Check]:
    """One answer for each machine that measures the base kernel otherwise than the last time.

    No machine is named for them: they take no claim away. Both kernels were booted in turn, so a level that moved
    before the session is in both of them; a question about the machine is open all the same.
    """
    stands = "both kernels were booted in turn, so the ratio stands"
    return [
        Check(Name.BASE, CheckOutcome.FAILED, f"{machine.name}: {text}; {stands}")
        for machine, text in base_drift(trial)
    ]


def _spans(sessions: Iterable[Session]) -> dict[int, tuple[datetime, datetime]]:
    """By session, when its first boot began and when its last one ended."""
    chosen = Session.objects.filter(pk__in=[session.pk for session in sessions])
    # A result that came late was no part of what was judged.
    judged = ~Q(boots__outcome=LATE)
    rows = chosen.annotate(began=Min("boots__started_at", filter=judged), ended=Max("boots__ended_at", filter=judged))
    return {row.pk: (row.began or row.created_at, row.ended or row.state_since) for row in rows}


def _check(machine: Machine, began: datetime, ended: datetime) -> Check:
    if changed := changes_since(machine, began):
        text = f"{machine.name} is another machine since it measured this: {changed}"
        return Check(Name.MACHINE, CheckOutcome.FAILED, text, machine.name)
    if machine.health == Machine.Health.QUARANTINED:
        text = f"{machine.name} is quarantined: {machine.health_reason or 'no reason given'}"
        return Check(Name.MACHINE, CheckOutcome.FAILED, text, machine.name)
    lines = Transition.objects.filter(subject="machine-health", subject_id=machine.pk, at__range=(began, ended))
    ill = lines.filter(after=Machine.Health.QUARANTINED).order_by("id").first()
    if ill is not None:
        text = f"{machine.name} was quarantined while it measured this: {ill.reason or 'no reason given'}"
        return Check(Name.MACHINE, CheckOutcome.FAILED, text, machine.name)
    if machine.health == Machine.Health.GOOD:
        return Check(
            Name.MACHINE, CheckOutcome.PASSED, f"{machine.name} is good, and was when it measured this", machine.name
        )
    now = Machine.Health(machine.health).label
    return Check(Name.MACHINE, CheckOutcome.NOT_CHECKED, f"{machine.name} is now {now}", machine.name)


def confirm(finding: Finding, reason: Reason, *, actor: str = "") -> bool:
    """CANDIDATE -> CONFIRMED, and on to BISECTING where there is something to look for.

    Runs in the transaction of the caller, who holds the finding. False, and nothing done, if it is no candidate any
    more. Nobody looks for the revision in a series that a newer version has replaced.
    """
    if finding.state != Finding.State.CANDIDATE or not finding.advance(Finding.State.CONFIRMED, reason, actor=actor):
        return False
    link_to_previous(finding)
    supersede_older(finding)
    if finding.series is None or finding.series.state != SeriesState.SUPERSEDED:
        begin(finding)
        if not join_same_change(finding):
            release_others(finding)
    enqueue("reports.sweep")
    return True


CLAIMS = (Finding.Kind.REGRESSED, Finding.Kind.IMPROVED, Finding.Kind.SPLIT)
_CHECKED = (Name.CODE, Name.MACHINE, Name.BASE, Name.LAYOUT)
_CONFIRMED = Because.CONFIRMED()


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
        finding.note(Because.LAYOUT_CHECKED())
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
    return [check for check in machine_checks(measured) if check.outcome == CheckOutcome.FAILED]


def _changed(result: Result | None) -> list[Comparison]:
    """The comparisons that make the claim."""
    return [row for row in result.comparisons if row.verdict in CHANGES] if result else []


def _layout_trial(finding: Finding, changed: Sequence[Comparison]) -> Trial | None:
    """The layout trial, asked for now if it is not yet; machines that cannot be relied on have no part in it."""
    if finding.trial is None:
        return None
    ill = {check.machine for check in machine_checks(_sessions(changed)) if check.outcome == CheckOutcome.FAILED}
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
    """Equal kernels make no claim (trials/scope.py); here it is said that these were told apart."""
    pairs = [(session.base_build, session.patched_build) for session in sessions]
    if not pairs:
        return []
    if all(base.text_hash and patched.text_hash and base.text_hash != patched.text_hash for base, patched in pairs):
        return [Check(Name.CODE, CheckOutcome.PASSED, "the kernels' code differs")]
    if all(base.kernel_hash and base.kernel_hash != patched.kernel_hash for base, patched in pairs):
        return [Check(Name.CODE, CheckOutcome.PASSED, "the kernels differ, on some machines in their data alone")]
    return [Check(Name.CODE, CheckOutcome.NOT_CHECKED, "not every build told a hash of its code")]


def _sessions(changed: Sequence[Comparison]) -> list[Session]:
    return list({row.session_id: row.session for row in changed}.values())


def _taken_away(finding: Finding) -> tuple[Why, str] | None:
    """Which failed check silences what the finding claimed, and in whose words; None where none does."""
    for name, why in ((Name.LAYOUT, Why.LAYOUT), (Name.MACHINE, Why.MACHINE)):
        failed = [str(row["text"]) for row in checks_named(finding, name) if row["outcome"] == CheckOutcome.FAILED]
        if failed:
            return why, "; ".join(failed)
    return None


def follow_up(finding: Finding) -> None:
    """Take up a new candidate whose vector is written; the checks confirm it, at once where there is nothing to check.

    Runs in the caller's transaction.
    """
    explain_finding(finding)
    ask_about_disagreements(finding)
    begin_checks(finding)
