"""Kernels that the lab still has to boot: their files must stay."""

from django.db.models import Q

from server.builds.models import Build
from server.lab.models import Machine, Session, SessionState, Trial, TrialState
from server.sources.models import Series, SeriesState


def builds_in_use() -> set[int]:
    """Ids of the builds of sessions that may boot on, of machines' health sessions, and of what waits to be planned.

    A session that is done and not concluded may be given more boots.
    """
    measuring = list(Trial.objects.filter(state=TrialState.MEASURING).values_list("pk", flat=True))
    undecided = Session.objects.filter(state=SessionState.DONE, concluded_at=None, trial__in=measuring)
    found: set[int] = set()
    for sessions in (Session.objects.filter(state__in=Session.OPEN), undecided):
        found |= {pk for pair in sessions.order_by().values_list("base_build", "patched_build") for pk in pair}
    chosen = Machine.objects.exclude(health_build=None).values_list("health_build", flat=True)
    found |= {pk for pk in chosen if pk is not None}
    waiting = Series.objects.filter(state=SeriesState.APPLIED, sessions__isnull=True)
    arms = Q(tree_sha__in=waiting.values("base__tree_sha")) | Q(tree_sha__in=waiting.values("head__tree_sha"))
    trials = Trial.objects.filter(state=TrialState.WANTED)
    arms |= Q(tree_sha__in=trials.values("base__tree_sha")) | Q(tree_sha__in=trials.values("patched__tree_sha"))
    return found | set(Build.objects.filter(arms).values_list("pk", flat=True))
