"""The sweep over trees: takes what is wanted, and finds what a lost message left."""

import structlog
from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError, transaction

from server.core.errors import DomainError
from server.detection.heads.answering import answer
from server.detection.heads.joining import join_same_changes
from server.detection.heads.observing import observe_due, waiting_branches
from server.detection.heads.wanting import take_wanted
from server.detection.heads.withdrawing import drop_empty
from server.detection.models import Finding
from server.sources.models import Branch

log = structlog.get_logger(__name__)

# Heads of one branch at once; the next sweep goes on.
_MOST = 20


def tend() -> int:
    """Ask for trials of wanted revisions, let due heads enter their timelines, end candidates that nothing speaks for.

    Returns how much was done. Bounded work; harmless twice and beside another. A branch that cannot be looked at does
    not stand in the way of others.
    """
    done = take_wanted()
    for branch, reference in waiting_branches():
        try:
            done += observe_due(branch, reference, most=_MOST)
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
                answer(finding.trial)
    return len(waiting)
