"""Outages of the service itself: while it was down nobody could be heard, and nobody's silence says anything."""

from datetime import datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest

from server.core import clock
from server.lab.models import Attempt, AttemptState, RoundMark

log = structlog.get_logger(__name__)

# Rounds are made several times a minute; a restart of the service after an update takes less.
_OUTAGE = timedelta(minutes=2)
# An agent says something once a minute at least; one whose machine boots just now has a longer lease by itself.
_GRACE = timedelta(minutes=5)


def begin_round(adapter: str) -> None:
    """Call it first in each round: after an outage every attempt gets the time back that it had no chance to use.

    Agents work on without the service and come back to it. Judged by leases that ended meanwhile, all of them would
    be lost in the first round after an outage, and their machines switched off while they measure.
    """
    now = clock.now()
    mark, new = RoundMark.objects.get_or_create(adapter=adapter, defaults={"last_at": now})
    if not new and now - mark.last_at > _OUTAGE:
        _give_back(mark, now)


def end_round(adapter: str) -> None:
    """Call it last, however the round ended: a round that takes long is no outage."""
    RoundMark.objects.filter(adapter=adapter).update(last_at=clock.now())


def _give_back(mark: RoundMark, now: datetime) -> None:
    with transaction.atomic():
        # Of two dispatchers one does it.
        if not RoundMark.objects.filter(pk=mark.pk, last_at=mark.last_at).update(last_at=now):
            return
        gap = now - mark.last_at
        active = Attempt.objects.filter(state__in=Attempt.ACTIVE, created_at__lt=now)
        active.filter(deadline_at__isnull=False).update(deadline_at=F("deadline_at") + gap)
        held = active.filter(state=AttemptState.RUNNING, lease_until__isnull=False)
        held.update(lease_until=Greatest(F("lease_until"), now + _GRACE))
    log.warning("service_was_away", adapter=mark.adapter, seconds=gap.total_seconds())
