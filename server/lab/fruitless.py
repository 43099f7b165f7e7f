"""How often work was tried for nothing."""

from django.db.models import QuerySet

from server.builds.models import Build
from server.lab.models import Attempt, AttemptState, BootState, PowerCycle, Session

# Attempts that ended without any progress before the work is given up.
MAX_FRUITLESS_ATTEMPTS = 8
# More than people and restarts stop of one piece of work: what is beyond, its agent ends by itself again and again.
_MOST_STOPPED = 50


def fruitless_attempts(item: Build | Session | PowerCycle) -> int:
    """Attempts for the present cause of a build; of a session those since the last boot that ended with a result.

    Those that the controller was never asked to begin do not count: a job that is missing over a weekend, or a token
    that is refused, says nothing about the work. Nor do those of builds and sessions that no agent has claimed: what
    never began is its host's trouble, or ours. A machine's check is about the machine. Nor does any that was
    stopped, by a person or because its controller went down, up to some number that nobody reaches so.
    """
    asked = item.attempts.exclude(jenkins_run__posts=0, agent="")
    if isinstance(item, Build):
        asked = asked.filter(trace=item.trace)
    stopped = max(asked.filter(state=AttemptState.CANCELED).count() - _MOST_STOPPED, 0)
    return stopped + _ended_in_vain(item, asked.exclude(state=AttemptState.CANCELED))


def _ended_in_vain(item: Build | Session | PowerCycle, begun: "QuerySet[Attempt]") -> int:
    if isinstance(item, Build) or (isinstance(item, Session) and item.purpose != Session.Purpose.HEALTH):
        begun = begun.exclude(jenkins_run__isnull=False, agent="", arrived_at=None)
    if not isinstance(item, Session):
        return begun.count()
    ended = item.boots.filter(state__in=[BootState.MEASURED, BootState.FAILED]).order_by("-state_since")
    last = ended.values_list("state_since", flat=True).first()
    return (begun.filter(created_at__gt=last) if last else begun).count()
