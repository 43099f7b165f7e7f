"""Minimum effects: what a change must exceed to be worth a verdict, from comparisons of equal kernels and the drifts
among them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Min, OuterRef, Q, QuerySet, Subquery

from server.core.models import Transition
from server.core.reasons import Because
from server.detection.models import Comparison, MachineQuestion
from server.lab.hosts.state import Health
from server.lab.models import Session, Trial
from server.stats.functions import special

# Primary keys of (case, metric, core type); a core type belongs to one machine.
CellKey = tuple[int, int, int]


# With fewer A/A changes of a cell nothing is said about its noise: the factor on their root mean square is then above
# 2.3 (1.96 for a known one), and their own scatter makes it wrong by a quarter as often as not.
FEWEST_CHANGES = 8
# From this many on the 95th percentile is one of the changes, or lies between two of them: with 19, the next change is
# larger than all of them once in 20 times, whatever their distribution.
_ENOUGH_TO_COUNT = 19
_QUANTILE = 0.95
_UPPER = (1 + _QUANTILE) / 2


def change_95(logs: Sequence[float]) -> float:
    """What the next A/A change of a cell stays below 19 times in 20, as a fraction; `logs` are logarithms of ratios.

    From 19 changes on it is read off their sizes at the place 0.95 (n + 1) (Weibull, 1939): right on average for any
    distribution. Fewer leave no such place; then it is Student's quantile at n degrees of freedom times their root
    mean square about zero (equal kernels have no difference), right on average for normal changes. Of fewer than
    FEWEST_CHANGES it is only the largest that was seen, 0 of none.
    """
    sizes = sorted(abs(log) for log in logs)
    number = len(sizes)
    if number < FEWEST_CHANGES:
        return math.expm1(sizes[-1]) if sizes else 0.0
    if number < _ENOUGH_TO_COUNT:
        spread = math.sqrt(sum(size * size for size in sizes) / number)
        return math.expm1(float(special.stdtrit(number, _UPPER)) * spread)
    place = _QUANTILE * (number + 1)
    below = math.floor(place)
    low = sizes[below - 1]
    high = sizes[min(below, number - 1)]
    return math.expm1(low + (place - below) * (high - low))


@dataclass(frozen=True)
class Drift:
    """One drift of a machine. Its nights are what was judged from `began` on, and before `over` (null: it goes on).

    `trial` is the second of the two trials that showed it, judged at `known`. `as_before` says that the service found
    the machine to be again as it was; else a person released it, who may have made another machine of it.
    """

    machine: int
    trial: int
    began: datetime
    known: datetime
    over: datetime | None
    as_before: bool = False

    def holds(self, at: datetime) -> bool:
        """Whether what was judged then shows the drift, and not the machine."""
        return self.began <= at and (self.over is None or at < self.over)


def health_lines(machine: int) -> QuerySet[Transition]:
    """The history of a machine's health."""
    return Transition.objects.filter(subject="machine-health", subject_id=machine)


def drift_key(machine: int, trial: int) -> str:
    """Of the question that a drift is: one for each machine and trial."""
    return f"drift:{machine}:{trial}"


def noise_trials(machine: int) -> QuerySet[Trial]:
    """The A/A trials that were measured on a machine."""
    return Trial.objects.filter(purpose=Trial.Purpose.NOISE, state=Trial.State.DONE, sessions__machine=machine)


def drifts_of(machines: Collection[int]) -> list[Drift]:
    """All drifts of these machines, oldest first. One query, and three more for each drift: there are few."""
    asked = MachineQuestion.objects.filter(kind=MachineQuestion.Kind.DRIFT, machine__in=machines)
    return [_drift(question) for question in asked.order_by("pk")]


def _drift(question: MachineQuestion) -> Drift:
    machine, trial, quarantine = question.machine_id, question.trial_id, question.quarantine_id
    assert trial is not None
    began, known = _began(machine, trial) or question.created_at, question.created_at
    lines = health_lines(machine)
    if quarantine is None:
        # It was out of service already, or in somebody's hands: a person who puts it back knows it as it is now.
        return Drift(machine, trial, began, known, over=known)
    left = lines.filter(before=Health.QUARANTINED, id__gt=quarantine).exclude(after=Health.QUARANTINED)
    end = left.order_by("id").first()
    if end is None:
        return Drift(machine, trial, began, known, over=None)
    confirmed = lines.filter(id__gte=quarantine, id__lte=end.pk).exclude(actor="")
    return Drift(machine, trial, began, known, over=end.at, as_before=not confirmed.exists())


def _began(machine: int, trial: int) -> datetime | None:
    """When the first of the two trials was judged."""
    before = noise_trials(machine).filter(pk__lt=trial).order_by("-pk").values_list("pk", flat=True).first()
    rows = Comparison.objects.filter(session__machine=machine, session__trial__in=[before or trial, trial])
    found: datetime | None = rows.aggregate(at=Min("computed_at"))["at"]
    return found


# The latest changes tell how noisy a cell is; those of before the last year are of another firmware, or another room.
KEPT_CHANGES = 200
REMEMBERED = timedelta(days=365)


@dataclass(frozen=True)
class Change:
    """One A/A change of a cell: the logarithm of its ratio, and when it was judged."""

    log: float
    at: datetime


def equal_sessions(machines: Collection[int], *, since: datetime) -> "QuerySet[Any, Any]":
    """Sessions of trials and series on these machines, planned since then, of one kernel on both sides; lists of an id.

    Two builds count where the service itself chose them for their noise; that a build of somebody's patches has the
    hash of its base is his word. Health sessions are not among them: two boots a side are too short, and nobody judges
    them.
    """
    planned = Session.objects.filter(machine__in=machines, created_at__gte=since)
    planned = planned.exclude(purpose=Session.Purpose.HEALTH).order_by()
    # One trial at a time: joined, all that there ever were would be read.
    asked = Subquery(Trial.objects.filter(pk=OuterRef("trial")).order_by().values("purpose")[:1])
    alike = Q(base_build=F("patched_build")) | Q(asked=Trial.Purpose.NOISE)
    return planned.annotate(asked=asked).filter(alike).values_list("pk")


def planned_since(at: datetime) -> datetime:
    """From when on sessions count, for all comparisons of the year before `at`: none was under way for another year."""
    return at - 2 * REMEMBERED


def equal_comparisons(machines: Collection[int], *, since: datetime) -> QuerySet[Comparison]:
    """The judged cells of those sessions that have a ratio, oldest first.

    What a machine measured while its hardware or firmware was changed is no noise of either.
    """
    return judged_in([pk for (pk,) in equal_sessions(machines, since=since)])


def comparisons_of_nights(machine: int, trials: Collection[int]) -> QuerySet[Comparison]:
    """The same of some A/A trials on one machine, whenever they were."""
    nights = Session.objects.filter(machine=machine, trial__in=trials, trial__purpose=Trial.Purpose.NOISE)
    return judged_in(list(nights.order_by().values_list("pk", flat=True)))


def judged_in(sessions: Collection[int]) -> QuerySet[Comparison]:
    """Cells that count for the noise of the machine, if kernels were equal in these sessions."""
    rows = Comparison.objects.filter(session__in=sessions, ratio__gt=0).exclude(reason_code=Because.OTHER_MACHINE)
    return rows.order_by("computed_at", "pk")


def recent(changes: Sequence[Change], *, before: datetime) -> list[float]:
    """Logarithms of the changes that count at that time, oldest first; `changes` come oldest first."""
    since = before - REMEMBERED
    return [change.log for change in changes if since <= change.at < before][-KEPT_CHANGES:]


def log_ratio(ratio: float | None) -> float:
    """Of a comparison that has one; rows without are left out by `equal_comparisons`."""
    return math.log(ratio) if ratio else 0.0


# What every cell has at least: smaller changes get no verdict, as is published practice for kernels. A cell whose equal
# kernels differ by more has a larger one (docs/detection/noise.md).
LEAST_EFFECT = 0.01


def min_effects(sessions: Sequence[Session]) -> Mapping[tuple[int, int, int, int], float]:
    """Minimum effects as fractions by (session, case, metric, core type), where they are above 1 %.

    A cell's is the 95th percentile of its own A/A changes, as known when the session was created: judging the session
    again later gives the same. So are the drifts of its machine: their nights do not count, or one bad week would hide
    changes for a year. A cell with fewer than FEWEST_CHANGES changes has no entry. Five queries at most for
    any number of sessions on as many machines, and three more for each drift.

    It is not made smaller for sessions with more boots than an A/A session has. Sampling error is what intervals are
    for; this floor is what the machine does between equal kernels one time in twenty, whatever the reason, and a claim
    below it would not be believed by whoever knows the machine.
    """
    found: dict[tuple[int, int, int, int], float] = {}
    left = list(sessions)
    while left:
        # The database puts the changes of a cell into one row, which a second session on its machine would mix up.
        by_machine = {session.machine_id: session for session in reversed(left)}
        found |= _effects(by_machine)
        left = [session for session in left if by_machine[session.machine_id] is not session]
    return found


def effect_of(logs: Sequence[float]) -> float:
    """The minimum effect of a cell with these A/A changes (logarithms of ratios): 1 % unless they ask for more."""
    return max(LEAST_EFFECT, change_95(logs)) if len(logs) >= FEWEST_CHANGES else LEAST_EFFECT


def _effects(by_machine: Mapping[int, Session]) -> dict[tuple[int, int, int, int], float]:
    known = Q()
    drifts = drifts_of(by_machine.keys())
    for machine, session in by_machine.items():
        at = session.created_at
        own = Q(session__machine=machine, computed_at__gte=at - REMEMBERED, computed_at__lt=at)
        for drift in drifts:
            if drift.machine == machine and drift.known < at:
                own &= ~_nights(drift)
        known |= own
    since = planned_since(min(session.created_at for session in by_machine.values()))
    cells = equal_comparisons(by_machine.keys(), since=since).filter(known).order_by()
    grouped = cells.values_list("session__machine", "case", "metric", "core_type")
    told = grouped.annotate(number=Count("pk"), ratios=ArrayAgg("ratio", order_by=("computed_at", "pk")))
    found = {}
    for machine, case, metric, core_type, _, ratios in told.filter(number__gte=FEWEST_CHANGES):
        effect = effect_of([math.log(ratio) for ratio in ratios[-KEPT_CHANGES:]])
        if effect > LEAST_EFFECT:
            found[by_machine[machine].pk, case, metric, core_type] = effect
    return found


def _nights(drift: Drift) -> Q:
    nights = Q(computed_at__gte=drift.began)
    return nights if drift.over is None else nights & Q(computed_at__lt=drift.over)
