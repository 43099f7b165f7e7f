"""What detection does by itself: what a lost message, a killed worker or a failing git left, what has expired."""

from collections.abc import Callable

import structlog
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q

from server.core.clock import lately
from server.core.errors import DomainError
from server.core.reasons import Because
from server.detection.bisection.conclusion import settle
from server.detection.bisection.knowledge import answer_from_code
from server.detection.bisection.rounds import begin_forgotten, search_on
from server.detection.bisection.search import go_on, stuck_before
from server.detection.bisection.step import answer_step
from server.detection.bisection.walk import walk_what_changed
from server.detection.branches.candidates import drop_empty
from server.detection.branches.heads import take_wanted
from server.detection.branches.observation import observe_due, waiting_branches
from server.detection.branches.release import join_same_changes
from server.detection.findings.checks import held, stop_forgotten
from server.detection.findings.versions import awaiting_replacement, supersede_of_series, supersede_older
from server.detection.lifecycle.confirmation import begin_checks, conclude_checks, layout_key
from server.detection.lifecycle.fix import look_for_mending, mendable
from server.detection.lifecycle.ledger import expire_acceptances
from server.detection.models import Bisection, BisectionState, BisectionStep, Finding, FindingVerdict
from server.detection.noise.nights import tend_noise
from server.detection.on_trial_over import answer_branch
from server.lab.models import Trial, TrialState
from server.lab.trials.life import cancel_trial
from server.sources.models import Branch, Series

log = structlog.get_logger(__name__)

_OPEN = (BisectionState.ENDS, BisectionState.SEARCHING, BisectionState.CHECKING)
# Of each kind at once; the next sweep goes on. A step asked takes milliseconds, a revert seconds.
_MOST_BISECTIONS = 50


def tend_bisections() -> None:
    """Take up answers, ask next steps, end what nobody asks for; harmless twice."""
    begin_forgotten(_MOST_BISECTIONS)
    search_on(_MOST_BISECTIONS)
    answered = BisectionStep.objects.filter(answer="", trial__answered_at__isnull=False)
    for bisection_id, step_id in answered.values_list("bisection_id", "pk")[:_MOST_BISECTIONS]:
        answer_step(bisection_id, step_id)
    kinds = [BisectionStep.Kind.MIDDLE, BisectionStep.Kind.REVERT]
    planned = BisectionStep.objects.filter(answer="", kind__in=kinds, trial__state=TrialState.MEASURING)
    for bisection_id, step_id in planned.values_list("bisection_id", "pk")[:_MOST_BISECTIONS]:
        answer_from_code(bisection_id, step_id)
    # Steps that are waited for; those that nobody waits for any longer end their bisection.
    asked = BisectionStep.objects.filter(bisection=OuterRef("pk"), answer="", created_at__gte=stuck_before())
    needless = ~Q(finding__state=Finding.State.BISECTING) | Q(finding__series__state=Series.State.SUPERSEDED)
    waiting = Bisection.objects.filter(~Exists(asked) | needless, state__in=_OPEN)
    for bisection_id in waiting.order_by("pk").values_list("pk", flat=True)[:_MOST_BISECTIONS]:
        _each(go_on, bisection_id)
    _cancel_trials()
    done = Finding.objects.filter(state=Finding.State.BISECTING).exclude(bisections__state__in=_OPEN)
    for finding_id in done.values_list("pk", flat=True)[:_MOST_BISECTIONS]:
        settle(finding_id)
    walk_what_changed()


def _each(step: Callable[[int], None], row_id: int) -> None:
    """One that cannot go on now keeps no other from it."""
    try:
        step(row_id)
    except DomainError as error:
        log.warning("bisection_waits", bisection=row_id, code=error.code, reason=error.message)


def _cancel_trials() -> None:
    """Not in the step that made them needless: who answers a trial holds it before the bisection."""
    asked = BisectionStep.objects.filter(trial=OuterRef("pk"), answer="")
    left = Trial.objects.filter(
        ~Exists(asked),
        state__in=[TrialState.WANTED, TrialState.MEASURING],
        purpose__in=[Trial.Purpose.BISECT, Trial.Purpose.REVERT],
    )
    for trial in left[:_MOST_BISECTIONS]:
        cancel_trial(trial, Because.NOT_WANTED("what it was to tell is known, or nobody asks any more"))


# Heads of one branch at once; the next sweep goes on.
_MOST_HEADS = 20


def tend_branches() -> int:
    """Ask for trials of wanted revisions, let due heads enter their timelines, end candidates that nothing speaks for.

    Returns how much was done. Bounded work; harmless twice and beside another. A branch that cannot be looked at does
    not stand in the way of others.
    """
    done = take_wanted()
    for branch, reference in waiting_branches():
        try:
            done += observe_due(branch, reference, most=_MOST_HEADS)
        except (DomainError, ValueError, KeyError, ObjectDoesNotExist, IntegrityError):
            log.exception("branch_not_observed", branch=branch)
    candidates = Finding.objects.filter(state=Finding.State.CANDIDATE, branch__isnull=False)
    for branch_row in Branch.objects.filter(pk__in=candidates.values("branch")):
        done += drop_empty(branch_row)
    return done + join_same_changes() + _answer_again()


def _answer_again() -> int:
    """Candidates whose trial was over while they were something else: somebody had accepted them for a while."""
    waiting = Finding.objects.filter(
        state=Finding.State.CANDIDATE, branch__isnull=False, verdicts=None, trial__answered_at__isnull=False
    )
    for finding in waiting.select_related("trial"):
        if finding.trial is not None:
            with transaction.atomic():
                answer_branch(finding.trial)
    return len(waiting)


# One sweep does no more of a kind; the next one comes soon.
_AT_ONCE = 50


def tend_life() -> None:
    """Every part can fail alone, and each finding alone."""
    for part in (_supersede_of_series, _supersede_by_newer, expire_acceptances, _stop_forgotten):
        _part_alone(part)
    for finding_id in _unchecked()[:_AT_ONCE]:
        _alone(finding_id, _go_on_checking)
    for finding in mendable()[:_AT_ONCE]:
        _alone(finding.pk, _look_for_mending)


def look_back() -> None:
    """What the sweep looks for among findings of late, among all that there are: nobody waits for this one."""
    supersede_of_series()
    for finding in awaiting_replacement(_AT_ONCE):
        supersede_older(finding)


def _supersede_of_series() -> None:
    supersede_of_series(since=lately())


def _supersede_by_newer() -> None:
    for finding in awaiting_replacement(_AT_ONCE, since=lately()):
        supersede_older(finding)


def _stop_forgotten() -> None:
    stop_forgotten(_AT_ONCE)


def _part_alone(part: Callable[[], object]) -> None:
    try:
        part()
    except DomainError as error:
        log.warning("life_not_tended", part=part.__name__, code=error.code, reason=error.message)


def _alone(finding_id: int, do: Callable[[Finding], object]) -> None:
    try:
        with transaction.atomic():
            do(held(finding_id))
    except DomainError as error:
        log.warning("finding_not_tended", finding=finding_id, code=error.code, reason=error.message)


def _unchecked() -> list[int]:
    """Candidates that are judged: those of suspected changes wait for their own trial, and for what it says of them."""
    told = Q(branch=None) | Q(Exists(FindingVerdict.objects.filter(finding=OuterRef("pk"))))
    rows = Finding.objects.filter(told, state=Finding.State.CANDIDATE, trial__answered_at__isnull=False)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _go_on_checking(finding: Finding) -> None:
    layout = Trial.objects.filter(key=layout_key(finding)).first()
    if layout is None:
        begin_checks(finding)
    elif layout.state in Trial.FINAL and layout.answered_at is not None:
        conclude_checks(finding)


def _look_for_mending(finding: Finding) -> None:
    if finding.state in (Finding.State.CONFIRMED, Finding.State.REPORTED):
        look_for_mending(finding)


# Each is harmless twice, does a bounded piece of work, and may fail alone.
PARTS: dict[str, Callable[[], object]] = {
    "noise": tend_noise,
    "heads": tend_branches,
    "bisections": tend_bisections,
    "life": tend_life,
}
