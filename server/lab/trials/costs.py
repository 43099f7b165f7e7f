"""What trials cost: the one place where machine time is counted."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Case, Count, DurationField, ExpressionWrapper, F, Q, Sum, Value, When
from django.db.models.functions import Coalesce, Greatest, Least

from server.core import clock
from server.lab.models import LATE, BootState, Session

# A machine's clock may jump while it boots: no boot is charged with less than nothing or more than a day.
_NOTHING, _MOST = timedelta(0), timedelta(days=1)


@dataclass(frozen=True)
class Cost:
    """Sessions that were planned, boots that were begun, and seconds of machines that the boots took."""

    sessions: int
    boots: int
    seconds: float


def spent(trial_ids: Collection[int]) -> Cost:
    """What these trials cost together so far; a boot that is under way counts until now."""
    row = Session.objects.filter(trial__in=trial_ids).aggregate(
        sessions=Count("pk", distinct=True),
        begun=Count("boots", filter=Q(boots__started_at__isnull=False)),
        seconds=Sum(_seconds()),
    )
    total = row["seconds"] or _NOTHING
    return Cost(row["sessions"], row["begun"], total.total_seconds())


def spent_by_session(trial_id: int) -> dict[int, float]:
    """Seconds of its machine that each session of a trial took so far."""
    rows = Session.objects.filter(trial=trial_id).order_by().annotate(seconds=Sum(_seconds()))
    return {pk: (total or _NOTHING).total_seconds() for pk, total in rows.values_list("pk", "seconds")}


def _seconds() -> Case:
    """What a boot took. One that waits to be tried again keeps its beginning, and costs nothing until the next."""
    end = Case(When(boots__state=BootState.RUNNING, then=Value(clock.now())), default=F("boots__ended_at"))
    took = ExpressionWrapper(end - F("boots__started_at"), output_field=DurationField())
    return Case(
        When(boots__started_at=None, then=Value(_NOTHING)),
        When(boots__state=BootState.PLANNED, then=Value(_NOTHING)),
        When(boots__outcome=LATE, then=Value(_NOTHING)),
        default=Least(Greatest(Coalesce(took, Value(_NOTHING)), Value(_NOTHING)), Value(_MOST)),
        output_field=DurationField(),
    )
