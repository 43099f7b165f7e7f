"""How often work was tried for nothing."""

from server.builds.models import Build
from server.lab.models import BootState, PowerCycle, Session

# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8


def fruitless_attempts(item: Build | Session | PowerCycle) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result."""
    if isinstance(item, Build):
        return item.attempts.filter(trace=item.trace).count()
    if isinstance(item, PowerCycle):
        return item.attempts.count()
    ended = item.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).order_by("-state_since")
    last = ended.values_list("state_since", flat=True).first()
    attempts = item.attempts.all()
    return (attempts.filter(created_at__gt=last) if last else attempts).count()
