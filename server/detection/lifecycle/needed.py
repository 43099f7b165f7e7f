"""Whose samples somebody still asks for: sessions of questions that are open. These stay whole, however old."""

from collections.abc import Collection

from django.db.models import Exists, OuterRef, Q, QuerySet

from server.detection.findings.filters import is_open
from server.detection.models import Bisection, BisectionStep, Finding, FindingTrial, FindingVerdict
from server.lab.models import Session, Trial


def sessions_in_use(sessions: Collection[int]) -> set[int]:
    """Which of these sessions an open finding, a bisection that goes on, or a trial that is not answered needs."""
    rows = list(Session.objects.filter(pk__in=sessions).order_by().values_list("pk", "trial", "series"))
    trials = _needed_trials({trial for _, trial, _ in rows if trial is not None})
    series = {pk for _, _, pk in rows if pk is not None}
    of_series = set(Finding.objects.filter(is_open(), series__in=series).values_list("series", flat=True))
    named = _named(sessions)
    return {pk for pk, trial, of in rows if pk in named or trial in trials or of in of_series}


def _needed_trials(trials: Collection[int]) -> set[int]:
    unanswered = Trial.objects.filter(Q(answered_at=None) | ~Q(state__in=Trial.FINAL), pk__in=trials)
    judged = Finding.objects.filter(is_open(), trial__in=trials)
    open_finding = Exists(Finding.objects.filter(is_open(), pk=OuterRef("finding")).order_by())
    asked = FindingTrial.objects.filter(open_finding, trial__in=trials)
    searched = Exists(_going_on().filter(pk=OuterRef("bisection")))
    found_by = Exists(Finding.objects.filter(is_open(), pk=OuterRef("bisection__finding")).order_by())
    steps = BisectionStep.objects.filter(searched | found_by, trial__in=trials)
    found = set(unanswered.order_by().values_list("pk", flat=True))
    for needed in (judged, asked, steps):
        found |= {pk for pk in needed.order_by().values_list("trial", flat=True) if pk is not None}
    return found


def _named(sessions: Collection[int]) -> set[int]:
    """Those with a cell that a verdict, or a search, speaks of."""
    standing = Exists(Finding.objects.filter(is_open(), pk=OuterRef("finding")).order_by())
    verdicts = FindingVerdict.objects.filter(standing, comparison__session__in=sessions).order_by()
    targets = _going_on().filter(target__session__in=sessions)
    found = set(verdicts.values_list("comparison__session", flat=True))
    return found | set(targets.values_list("target__session", flat=True))


def _going_on() -> "QuerySet[Bisection]":
    return Bisection.objects.exclude(state__in=Bisection.FINAL).order_by()
