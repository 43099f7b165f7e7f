"""At most so many requests a second to the controller, by all processes together.

The generic cell rate algorithm: a mark says when the next request is due if all came evenly; a request may leave when
the mark is at most a burst ahead of now, and puts it one interval further. The mark is a column, moved by one UPDATE.
"""

import time
from datetime import timedelta

from django.conf import settings
from django.db.models import Case, DateTimeField, DurationField, ExpressionWrapper, F, Func, Q, When

from server.lab.dispatch.jenkins.errors import Crowded
from server.lab.models import JenkinsController

# The controller bears far more; a service should not be felt there.
REQUESTS_PER_SECOND = 5
# What one round of reconciling needs leaves at once.
BURST = 5
_INTERVAL = timedelta(seconds=1 / REQUESTS_PER_SECOND)
_ROOM = _INTERVAL * (BURST - 1)
# A mark this far ahead was set by a clock that has been put back since.
_ABSURD = timedelta(minutes=1)
DEFAULT_PATIENCE = 5.0
_SHORTEST_WAIT = 0.005


class _Clock(Func):
    """The database's clock: the same for all processes, and moving inside a transaction, too."""

    function = "clock_timestamp"
    output_field = DateTimeField()


def take_turn(patience: float = DEFAULT_PATIENCE) -> None:
    """Wait for the next free slot, at most `patience` seconds; raises Crowded when there is none until then.

    Not to be called inside a transaction of any length: the mark's row stays locked until its end.
    """
    deadline = time.monotonic() + patience
    while not _slot_taken():
        wait = _seconds_to_next()
        if time.monotonic() + wait > deadline:
            raise Crowded(f"no free slot for a request to Jenkins within {patience:g} s")
        time.sleep(wait)


def _slot_taken() -> bool:
    now = _Clock()
    mark = F("next_request_at")
    ahead = Q(next_request_at__gt=now) & Q(next_request_at__lte=now + _ABSURD)
    free = Q(next_request_at=None) | Q(next_request_at__lte=now + _ROOM) | Q(next_request_at__gt=now + _ABSURD)
    later = Case(When(ahead, then=mark), default=now) + _INTERVAL
    row = JenkinsController.objects.filter(url=settings.JENKINS_URL)
    if row.filter(free).update(next_request_at=later):
        return True
    if not row.exists():
        # Two processes at once: the URL is unique, and the loser finds the row there.
        JenkinsController.objects.bulk_create([JenkinsController(url=settings.JENKINS_URL)], ignore_conflicts=True)
    return False


def _seconds_to_next() -> float:
    until = ExpressionWrapper(F("next_request_at") - _ROOM - _Clock(), output_field=DurationField())
    row = JenkinsController.objects.filter(url=settings.JENKINS_URL, next_request_at__isnull=False)
    left = row.values_list(until, flat=True).first()
    return max(left.total_seconds() if left else 0.0, _SHORTEST_WAIT)
