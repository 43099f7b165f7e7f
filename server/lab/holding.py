"""Which hosts are kept from other work, and for what."""

from collections.abc import Iterable

from django.db.models import Q

from server.lab.models import Attempt, AttemptState, Builder, Machine
from server.lab.works import boots_itself, work_of

# Words that stand where a key stands for the hosts that no attempt holds.
QUARANTINE = "quarantine"
_ON_ITS_WAY = Q(state__in=[Machine.State.RETURNING, Machine.State.POWER_CYCLING])
_SICK = Q(health=Machine.Health.QUARANTINED)


def hosts_to_hold(active: Iterable[Attempt]) -> dict[str, str]:
    """Hosts by their name in Jenkins, each with the key or word for which it is held.

    A machine that boots itself is held from the moment it took an attempt over until it says that it is back. One that
    is in quarantine is held unless it is to prove itself by an attempt.
    """
    held = {}
    for host in (*Machine.objects.filter(_ON_ITS_WAY | _SICK), *Builder.objects.filter(_SICK)):
        held[host.node_name] = QUARANTINE if host.health == Machine.Health.QUARANTINED else host.state
    for attempt in active:
        name = work_of(attempt).host
        if _is_taken(attempt):
            held[name] = attempt.key
        else:
            held.pop(name, None)
    return held


def _is_taken(attempt: Attempt) -> bool:
    """Its machine has it and goes its own way."""
    if attempt.session is None or not boots_itself(attempt.session.machine):
        return False
    return attempt.arrived_at is not None or attempt.state == AttemptState.RUNNING
