"""Work that came back without progress waits 1, 2, 4 ... seconds, so that a broken host is not hammered."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from django.db.models import Count, DateTimeField, F, Max, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce

from server.builds.models import BuildState
from server.lab.models import Attempt, Boot, BootState, PowerCycleState, SessionState

LONGEST_WAIT_SECONDS = 60
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_ENDED = [BootState.MEASURED, BootState.FAILED]


class Delay(NamedTuple):
    """When work may go again, after so many attempts in vain."""

    due: datetime
    fruitless: int


def due_at(since: datetime, fruitless: int) -> datetime:
    """When work that waits since then may go."""
    return since + timedelta(seconds=min(2 ** (fruitless - 1), LONGEST_WAIT_SECONDS)) if fruitless else since


def _recent(now: datetime) -> datetime:
    """What came back before then is due however often it was tried: nothing needs to be counted."""
    return now - timedelta(seconds=LONGEST_WAIT_SECONDS)


def _delays(rows: Iterable[tuple[int, datetime, int]]) -> dict[int, Delay]:
    return {pk: Delay(due_at(since, fruitless), fruitless) for pk, since, fruitless in rows}


def delayed_sessions(now: datetime) -> Mapping[int, Delay]:
    """Planned sessions that came back just now, by the attempts since their last boot with a result."""
    ended = Boot.objects.filter(session=OuterRef("session"), state__in=_ENDED).order_by().values("session")
    last = Subquery(ended.annotate(last=Max("state_since")).values("last"), output_field=DateTimeField())
    # Work comes back in the transaction that ends its attempt: by that it is found without reading every attempt.
    back = Attempt.objects.filter(session__isnull=False, state_since__gt=_recent(now)).values("session")
    attempts = Attempt.objects.filter(session__in=back, session__state=SessionState.PLANNED)
    counted = attempts.filter(created_at__gt=Coalesce(last, Value(_LONG_AGO)))
    return _delays(counted.order_by().values_list("session", "session__state_since").annotate(Count("pk")))


def delayed_builds(now: datetime) -> Mapping[int, Delay]:
    """Wanted builds that came back just now, by the attempts for their present cause."""
    attempts = Attempt.objects.filter(
        build__state=BuildState.WANTED, build__state_since__gt=_recent(now), trace=F("build__trace")
    )
    return _delays(attempts.order_by().values_list("build", "build__state_since").annotate(Count("pk")))


def delayed_cycles(now: datetime) -> Mapping[int, Delay]:
    attempts = Attempt.objects.filter(
        power_cycle__state=PowerCycleState.WANTED, power_cycle__state_since__gt=_recent(now)
    )
    rows = attempts.order_by().values_list("power_cycle", "power_cycle__state_since")
    return _delays(rows.annotate(Count("pk")))
