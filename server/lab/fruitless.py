"""How often work was tried for nothing."""

from server.builds.models import Build
from server.lab.models import AttemptState, BootState, PowerCycle, Session

# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8


def fruitless_attempts(item: Build | Session | PowerCycle) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result.

    Those that the controller was never asked to begin do not count: a job that is missing over a weekend, or a token
    that is refused, says nothing about the work. Nor do those of builds and sessions that no agent has claimed: what
    never began is its host's trouble, or ours. A machine's check is about the machine. Nor does any that was
    stopped, by a person or because its controller went down: however often, that says nothing about the work.
    """
    begun = item.attempts.exclude(jenkins_run__posts=0, agent="").exclude(state=AttemptState.CANCELED)
    if isinstance(item, Build) or (isinstance(item, Session) and item.purpose != Session.Purpose.HEALTH):
        begun = begun.exclude(jenkins_run__isnull=False, agent="", arrived_at=None)
    if isinstance(item, Build):
        return begun.filter(trace=item.trace).count()
    if isinstance(item, PowerCycle):
        return begun.count()
    ended = item.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).order_by("-state_since")
    last = ended.values_list("state_since", flat=True).first()
    return (begun.filter(created_at__gt=last) if last else begun).count()
