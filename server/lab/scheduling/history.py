"""What hosts gave to whom in the last day, and which builder is warm for what."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Max, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Coalesce

from server.lab.models import Attempt, AttemptState, Session, Trial
from server.lab.scheduling.askers import asker_of, tree_of
from server.lab.scheduling.snapshot import Spent

# Fair share looks back so far: long enough for a night's sessions to count, short enough to be forgiven.
WINDOW = timedelta(hours=24)
# A builder's work tree and compiler cache stay warm for longer than a day: they are pruned by size, not by age.
_WARM = timedelta(days=7)
# Until this site has its own figures.
_USUAL_SESSION_SECONDS = 1800.0
_USUAL_BUILD_SECONDS = 600.0


def on_machines(now: datetime) -> Spent:
    """Seconds of machines by tree, and by series or trial of no series."""
    # What the service does with machines for itself is no tree's.
    own = Q(session__purpose=Session.Purpose.HEALTH) | Q(session__trial__purpose=Trial.Purpose.NOISE)
    asked = _claimed(now).filter(machine__isnull=False).exclude(own)
    grouped = asked.annotate(tree=tree_of("session__"), asker=asker_of("session__")).values_list("tree", "asker")
    rows = list(grouped.annotate(count=Count("pk"), spent=_seconds(now)))
    trees: dict[int, float] = {}
    askers: dict[int, float] = {}
    for tree, asker, _count, spent in rows:
        seconds = max(0.0, spent.total_seconds())
        trees[tree] = trees.get(tree, 0.0) + seconds
        askers[asker] = askers.get(asker, 0.0) + seconds
    return Spent(trees, askers, _mean(trees, sum(row[2] for row in rows), _USUAL_SESSION_SECONDS))


def on_builders(now: datetime) -> Spent:
    """Seconds of builders by tree; one build serves many series, so that none of them is charged for it."""
    rows = (
        _claimed(now)
        .filter(build__isnull=False)
        .values_list("build__revision__tree")
        .annotate(count=Count("pk"), spent=_seconds(now))
    )
    found = [(tree, count, max(0.0, spent.total_seconds())) for tree, count, spent in rows]
    trees = {tree: seconds for tree, _count, seconds in found}
    return Spent(trees, {}, _mean(trees, sum(count for _tree, count, _seconds in found), _USUAL_BUILD_SECONDS))


def warm_trees(now: datetime) -> dict[tuple[int, int], int]:
    """The builder that made a tree's kernel in a configuration last, by tree and configuration."""
    made = Attempt.objects.filter(
        build__isnull=False, builder__isnull=False, state=AttemptState.DONE, state_since__gt=now - _WARM
    )
    by = ("build__revision__tree", "build__config", "builder")
    rows = made.order_by().values_list(*by).annotate(last=Max("pk")).order_by("last")
    return {(tree, config): builder for tree, config, builder, _last in rows}


def _claimed(now: datetime) -> "QuerySet[Attempt]":
    within = Q(state__in=Attempt.ACTIVE) | Q(state_since__gt=now - WINDOW)
    return Attempt.objects.filter(within).exclude(agent="").order_by()


def _seconds(now: datetime) -> Sum:
    """How long the attempts of a group held their hosts; those that still do, until now."""
    end = Case(When(state__in=Attempt.ACTIVE, then=Value(now)), default=F("state_since"))
    return Sum(ExpressionWrapper(end - Coalesce("arrived_at", "created_at"), output_field=DurationField()))


def _mean(seconds: Mapping[int, float], number: int, usual: float) -> float:
    """A second at least: what costs nothing would be given out without end."""
    return max(1.0, sum(seconds.values()) / number) if number else usual
