"""Comparisons of equal kernels: all that is known of a machine's noise follows from these rows, which never change."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from server.detection.doubting import OTHER_MACHINE
from server.detection.models import Comparison
from server.lab.models import Session, Trial

# The latest changes tell how noisy a cell is; those of before the last year are of another firmware, or another room.
KEPT_CHANGES = 200
REMEMBERED = timedelta(days=365)


@dataclass(frozen=True)
class Change:
    """One A/A change of a cell: the logarithm of its ratio, and when it was judged."""

    log: float
    at: datetime


def sessions_of_equal_kernels(machines: Collection[int], *, since: datetime) -> list[int]:
    """Ids of sessions of trials and series on these machines, planned since then, of one kernel on both sides.

    Two builds count where the service itself chose them for their noise; that a build of somebody's patches has the
    hash of its base is his word. Health sessions are not among them: two boots a side are too short, and nobody judges
    them. Two queries, the other about the sessions that the first one found: joined, all trials there ever were are
    read.
    """
    planned = Session.objects.filter(machine__in=machines, created_at__gte=since)
    planned = planned.exclude(purpose=Session.Purpose.HEALTH).order_by()
    rows = list(planned.values_list("pk", "trial_id", "base_build_id", "patched_build_id"))
    different = {trial for _pk, trial, base, patched in rows if base != patched}
    trials = Trial.objects.filter(pk__in=different, purpose=Trial.Purpose.NOISE)
    nights = set(trials.values_list("pk", flat=True))
    return [pk for pk, trial, base, patched in rows if base == patched or trial in nights]


def planned_since(at: datetime) -> datetime:
    """From when on sessions count, for all comparisons of the year before `at`: none was under way for another year."""
    return at - 2 * REMEMBERED


def equal_comparisons(machines: Collection[int], *, since: datetime) -> QuerySet[Comparison]:
    """The judged cells of those sessions that have a ratio, oldest first.

    What a machine measured while its hardware or firmware was changed is no noise of either.
    """
    return _judged(sessions_of_equal_kernels(machines, since=since))


def comparisons_of_nights(machine: int, trials: Collection[int]) -> QuerySet[Comparison]:
    """The same of some A/A trials on one machine, whenever they were."""
    nights = Session.objects.filter(machine=machine, trial__in=trials, trial__purpose=Trial.Purpose.NOISE)
    return _judged(list(nights.order_by().values_list("pk", flat=True)))


def _judged(sessions: Collection[int]) -> QuerySet[Comparison]:
    rows = Comparison.objects.filter(session__in=sessions, ratio__gt=0).exclude(reason__startswith=OTHER_MACHINE)
    return rows.order_by("computed_at", "pk")


def recent(changes: Sequence[Change], *, before: datetime) -> list[float]:
    """Logarithms of the changes that count at that time, oldest first; `changes` come oldest first."""
    since = before - REMEMBERED
    return [change.log for change in changes if since <= change.at < before][-KEPT_CHANGES:]


def log_ratio(ratio: float | None) -> float:
    """Of a comparison that has one; rows without are left out by `equal_comparisons`."""
    return math.log(ratio) if ratio else 0.0
