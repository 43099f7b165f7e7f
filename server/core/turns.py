"""Some of what waits, for sweeps that must be over soon: the oldest first, and nobody is kept from his turn."""

from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from server.core import clock


def in_turn(waiting: "QuerySet[Any, Any]", most: int) -> list[Any]:
    """At most `most` rows of an ordered query: one half from its beginning, the other from a place that moves on.

    Whatever fails each time it is tried stays at the beginning, and would otherwise keep all others waiting. The place
    follows the clock, so that nothing has to be remembered between two sweeps.
    """
    found = list(waiting[: most + 1])
    if len(found) <= most:
        return found
    half = most // 2
    others = waiting.count() - half
    turn = int(clock.now().timestamp() / settings.SWEEP_SECONDS)
    begin = half + turn * half % max(others, 1)
    return [*found[:half], *waiting[begin : begin + most - half]]
