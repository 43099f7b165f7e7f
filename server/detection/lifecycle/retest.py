"""A series, or both ends of a change in a branch, measured again because a person asked: a trial of its own, whose
answer stands as a check of the finding.

The finding claims nothing more for it: another look at the same question would let chance speak twice. It claims less
where the change does not show again. Where it said nothing, since nothing could be measured, the new trial takes the
place of the first.
"""

from collections.abc import Collection, Sequence

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from server.core.errors import DomainError
from server.core.models import LONGEST_ACTOR, Transition
from server.core.reasons import Because
from server.detection.findings.checks import Check, CheckOutcome, Name, add_check, ask_for, held
from server.detection.findings.result import Result, remade, remake, result_of
from server.detection.findings.vector import heard, uarch_verdicts
from server.detection.lifecycle.confirmation import CLAIMS, follow_up
from server.detection.lifecycle.disproof import disprove, not_seen_again
from server.detection.lifecycle.ledger import write_line
from server.detection.models import Comparison, Finding, Verdict
from server.lab.models import Machine, Trial, TrialState
from server.lab.trials.life import wanted_benchmarks
from server.lab.trials.question import USUAL_LOOKS, Ask, want_trial
from server.sources.models import Series, SeriesState

# Whoever wants more than this asks something else.
MOST_RETESTS = 20
_LONGEST_REASON = 500
_UNTOLD = (Finding.State.CANDIDATE, Finding.State.CONFIRMED)
_SECONDS_PER_HOUR = 3600.0


def retest_series(
    series: Series,
    *,
    actor: str,
    reason: str,
    machines: Collection[Machine] = (),
    benchmarks: Collection[str] = (),
) -> tuple[Trial, bool]:
    """Have an applied series measured anew, with fresh boots; the trial, and whether it is new.

    No `machines` are all that its tree is interested in, no `benchmarks` those that it was measured with. Asked while
    such a trial goes on, the same machines and benchmarks find that one. DomainError `no-reason`, `nobody`, `disabled`
    for a machine that is out of the lab, `conflict` for a series that is not applied or was measured often enough,
    `under-way` while the first trial or another one goes on.
    """
    person, why = actor.strip()[:LONGEST_ACTOR], " ".join(reason.split())[:_LONGEST_REASON]
    _refuse_empty(f"series {series.pk}", person, why, machines)
    with transaction.atomic():
        row = Series.objects.select_for_update(of=("self",), no_key=True).get(pk=series.pk)
        before = _refuse_unmeasured(row)
        going_on = before.exclude(state__in=Trial.FINAL).first()
        if going_on is not None:
            return _same(going_on, f"series {row.pk}", machines, _wanted(row, benchmarks)), False
        number = before.count() + 1
        if number > MOST_RETESTS:
            raise DomainError("conflict", f"series {row.pk} was measured again {MOST_RETESTS} times: that is enough")
        trial = _ask(row, number, machines, _wanted(row, benchmarks))
        Transition.objects.create(
            trace=row.trace, subject="series", subject_id=row.pk, before=row.state, after=row.state, actor=person,
            **Because.ASKED_AGAIN(f"measured again by trial {trial.pk}: {why}").columns(),
        )  # fmt: skip
        if finding := Finding.objects.filter(series=row).first():
            text = f"is measured again by trial {trial.pk}: {why}"
            row_found = held(finding.pk)
            add_check(row_found, Check(Name.RETEST, CheckOutcome.PENDING, text))
            # Who decides about the finding next is told of it.
            write_line(row_found, Because.ASKED_AGAIN(text), person)
    return trial, True


def retest_finding(
    finding: Finding,
    *,
    actor: str,
    reason: str,
    machines: Collection[Machine] = (),
    benchmarks: Collection[str] = (),
) -> tuple[Trial, bool]:
    """The same of what a finding tells: its series, or the heads before and after a change in a branch.

    Of a branch no `machines` are those that confirmed it, no `benchmarks` what was asked of them then.
    """
    if finding.series is not None:
        return retest_series(finding.series, actor=actor, reason=reason, machines=machines, benchmarks=benchmarks)
    person, why = actor.strip()[:LONGEST_ACTOR], " ".join(reason.split())[:_LONGEST_REASON]
    _refuse_empty(f"finding {finding.pk}", person, why, machines)
    with transaction.atomic():
        row = held(finding.pk)
        first = _confirmed_by(row)
        chosen = list(machines) or list(first.machines.filter(enabled=True))
        if not chosen:
            raise DomainError("disabled", f"no machine that confirmed finding {row.pk} is in the lab any more")
        wanted = tuple(sorted(set(benchmarks))) or tuple(first.benchmarks)
        before = Trial.objects.filter(asked_by__finding=row, purpose=Trial.Purpose.RETEST)
        going_on = before.exclude(state__in=Trial.FINAL).first()
        if going_on is not None:
            return _same(going_on, f"finding {row.pk}", chosen, wanted), False
        number = before.count() + 1
        if number > MOST_RETESTS:
            raise DomainError("conflict", f"finding {row.pk} was measured again {MOST_RETESTS} times: that is enough")
        trial = _ask_both_ends(row, number, chosen, wanted)
        text = f"is measured again by trial {trial.pk}: {why}"
        add_check(row, Check(Name.RETEST, CheckOutcome.PENDING, text))
        write_line(row, Because.ASKED_AGAIN(text), person)
    return trial, True


def _confirmed_by(row: Finding) -> Trial:
    if row.trial is None or row.trial.state not in Trial.FINAL:
        raise DomainError("under-way", f"finding {row.pk} is being measured for the first time")
    if row.state not in Finding.STANDING:
        raise DomainError("conflict", f"finding {row.pk} is {Finding.State(row.state).label}: it claims nothing")
    return row.trial


def _ask_both_ends(row: Finding, number: int, machines: Collection[Machine], benchmarks: tuple[str, ...]) -> Trial:
    assert row.trial is not None
    ask = Ask(
        key=f"finding:{row.pk}:retest:{number}",
        purpose=Trial.Purpose.RETEST,
        base=row.trial.base,
        patched=row.trial.patched,
        looks=USUAL_LOOKS,
        trace=row.trace,
        machines=tuple(sorted(machines, key=lambda machine: machine.name)),
        benchmarks=benchmarks,
        budget_seconds=row.trial.budget_seconds,
    )
    return ask_for(row, ask)


def answer_retest(trial: Trial) -> None:
    """Take up a trial of purpose RETEST that is over. Runs in the caller's transaction, which holds the series."""
    asked = Q(series=trial.series_id) if trial.series_id is not None else Q(asked__trial=trial)
    found = Finding.objects.filter(asked).first()
    if found is None:
        return
    finding = held(found.pk)
    result = result_of(trial, virtual_too=finding.virtual)
    if result is None or not (result.comparisons or result.identical):
        text = f"measured again by trial {trial.pk}, without a result: {trial.reason or TrialState(trial.state).label}"
        add_check(finding, Check(Name.RETEST, CheckOutcome.NOT_CHECKED, text))
        return
    if said_nothing(finding) and not _has_measured(finding) and _asks_all(finding, trial):
        Finding.objects.filter(pk=finding.pk).update(trial=trial)
        finding.trial = trial
        remake(finding)
        text = f"nothing had been measured; what trial {trial.pk} measured since is told here"
        add_check(finding, Check(Name.RETEST, CheckOutcome.PASSED, text))
        _follow_up_anew(finding, text)
        return
    told = compare_retest(finding, trial, result)
    add_check(finding, Check(Name.RETEST, told, f"measured again by trial {trial.pk}: {result.headline}"))
    disprove(finding, trial)


def take_up_anew(finding: Finding, trial: Trial) -> None:
    """Its own trial is over once more, since what had failed was asked for again; where it told all, that is all.

    Runs in the caller's transaction, which holds the series.
    """
    if finding.trial_id != trial.pk or not said_nothing(finding):
        return
    remake(finding)
    _follow_up_anew(held(finding.pk), f"more was measured by trial {trial.pk}")


def _follow_up_anew(finding: Finding, text: str) -> None:
    if finding.kind in CLAIMS and finding.state == Finding.State.CONFIRMED:
        # It was confirmed as one that claims nothing.
        finding.advance(Finding.State.CANDIDATE, Because.ASKED_AGAIN(text))
    follow_up(finding)


def compare_retest(finding: Finding, trial: Trial, result: Result) -> CheckOutcome:
    """Whether what a trial of purpose RETEST measured says the same as the finding says of that part.

    Of cells that both measured, on whichever machine of a microarchitecture: it fails where one is disproved, or where
    a microarchitecture has another verdict by these cells than by the finding's own. It cannot tell where none has any,
    or where the finding claims changes and none of these cells is one.
    """
    first = remade(finding)
    if first is None:
        return CheckOutcome.NOT_CHECKED
    if not_seen_again(finding, trial):
        return CheckOutcome.FAILED
    again = {_cell(row) for row in result.comparisons}
    rows = [row for row in heard(first.comparisons, finding.checks) if _cell(row) in again]
    both = {_cell(row) for row in rows}
    now = _said([row for row in result.comparisons if _cell(row) in both])
    # Where both kernels run the same code nothing is measured, and no cell could say anything else.
    now |= {of.uarch.pk: of.verdict for of in result.vector if of.unbooted}
    before = {of.uarch.pk: of.verdict for of in first.vector if of.uarch.pk in now} | _said(rows)
    told = [(before[uarch], now[uarch]) for uarch in before.keys() & now.keys()]
    told = [pair for pair in told if Verdict.INCONCLUSIVE not in pair]
    if any(one != other for one, other in told):
        return CheckOutcome.FAILED
    bears_out = finding.kind not in CLAIMS or any(one != Verdict.UNCHANGED for one, _ in told)
    return CheckOutcome.PASSED if told and bears_out else CheckOutcome.NOT_CHECKED


def _said(rows: Sequence[Comparison]) -> dict[int, str]:
    """By microarchitecture, what these cells say."""
    return {of.uarch.pk: of.verdict for of in uarch_verdicts((row.session.machine.uarch for row in rows), rows, ())}


def _cell(row: Comparison) -> tuple[int, int, int, str]:
    return row.session.machine.uarch_id, row.case_id, row.metric_id, row.core_type.name


def _asks_all(finding: Finding, trial: Trial) -> bool:
    """Whether it asks about all that its series, or its finding, is measured with."""
    if trial.series is not None:
        return set(trial.benchmarks) == set(wanted_benchmarks(trial.series))
    return finding.trial is not None and set(trial.benchmarks) == set(finding.trial.benchmarks)


def _has_measured(finding: Finding) -> bool:
    """Whether any cell was judged: then a second look at what was not certain would let chance speak twice."""
    of_first = {"session__trial": finding.trial_id} if finding.trial_id else {"session__series": finding.series_id}
    return Comparison.objects.filter(**of_first).exists()


def said_nothing(finding: Finding) -> bool:
    """It claims nothing, and nobody was told."""
    return finding.state in _UNTOLD and finding.kind == Finding.Kind.INCONCLUSIVE


def _refuse_empty(what: str, person: str, why: str, machines: Collection[Machine]) -> None:
    if not person:
        raise DomainError("nobody", f"{what}: who asks is not said")
    if not why:
        raise DomainError("no-reason", f"{what}: why is not said")
    if out := [machine.name for machine in machines if not machine.enabled]:
        raise DomainError("disabled", f"nothing goes to {', '.join(sorted(out))}: disabled")


def _refuse_unmeasured(row: Series) -> QuerySet[Trial]:
    """The trials that asked again before."""
    if row.state != SeriesState.APPLIED or row.base_id is None or row.head_id is None:
        label = SeriesState(row.state).label
        raise DomainError("conflict", f"series {row.pk} is {label}: only what is applied is measured")
    first = Trial.objects.filter(series=row, purpose=Trial.Purpose.SERIES).first()
    if first is None or first.state not in Trial.FINAL:
        raise DomainError("under-way", f"series {row.pk} is being measured for the first time")
    return Trial.objects.filter(series=row, purpose=Trial.Purpose.RETEST)


def _wanted(row: Series, benchmarks: Collection[str]) -> tuple[str, ...]:
    return tuple(sorted(set(benchmarks))) or tuple(wanted_benchmarks(row))


def _same(trial: Trial, what: str, machines: Collection[Machine], benchmarks: Collection[str]) -> Trial:
    told = f"{what} is being measured again already"
    if {machine.pk for machine in machines} != set(trial.machines.values_list("pk", flat=True)):
        where = ", ".join(trial.machines.order_by("name").values_list("name", flat=True)) or "all machines"
        raise DomainError("under-way", f"{told}, on {where}")
    if set(benchmarks) != set(trial.benchmarks):
        raise DomainError("under-way", f"{told}, with {', '.join(trial.benchmarks) or 'all benchmarks'}")
    return trial


def _ask(row: Series, number: int, machines: Collection[Machine], benchmarks: tuple[str, ...]) -> Trial:
    assert row.base is not None
    assert row.head is not None
    return want_trial(
        Ask(
            key=f"series:{row.pk}:retest:{number}",
            purpose=Trial.Purpose.RETEST,
            base=row.base,
            patched=row.head,
            looks=USUAL_LOOKS,
            trace=row.trace,
            series=row,
            machines=tuple(sorted(machines, key=lambda machine: machine.name)),
            benchmarks=benchmarks,
            budget_seconds=settings.SERIES_HOURS * _SECONDS_PER_HOUR or None,
        )
    )
