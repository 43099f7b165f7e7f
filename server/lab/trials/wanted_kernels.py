"""Which kernels trials wait for, and which of those under way they wait for no more."""

from collections.abc import Iterable

from django.db.models import Q, QuerySet

from server.builds.models import Build
from server.lab.models import Session, Trial, TrialState
from server.lab.trials.kernels import UNDER_WAY

_OPEN = (TrialState.WANTED, TrialState.MEASURING)


def awaited_by_trials() -> list[int]:
    """Ids of builds under way that an open trial, or a session that may boot, waits for."""
    trees = _trees(Trial.objects.filter(state__in=_OPEN))
    # A kernel whose files were removed is built again for its sessions, of before there were trials as well.
    sessions = Session.objects.filter(state__in=Session.OPEN).exclude(trial__state=TrialState.CANCELED)
    pairs = sessions.filter(Q(base_build__state__in=UNDER_WAY) | Q(patched_build__state__in=UNDER_WAY))
    waited = {pk for pair in pairs.values_list("base_build", "patched_build") for pk in pair}
    under_way = Build.objects.filter(Q(tree_sha__in=trees) | Q(pk__in=waited), state__in=UNDER_WAY)
    return list(under_way.values_list("pk", flat=True))


def trees_of_canceled() -> set[str]:
    """Source trees under way that a canceled trial wanted: of those nobody may need any more."""
    under_way = list(Build.objects.filter(state__in=UNDER_WAY).order_by().values_list("tree_sha", flat=True).distinct())
    canceled = Trial.objects.filter(state=TrialState.CANCELED)
    # Two questions, each by an index: one with OR over both would read every trial that was ever canceled.
    return _trees(canceled.filter(base__tree_sha__in=under_way)) | _trees(
        canceled.filter(patched__tree_sha__in=under_way)
    )


def _trees(trials: QuerySet[Trial]) -> set[str]:
    pairs: Iterable[tuple[str, str]] = trials.order_by().values_list("base__tree_sha", "patched__tree_sha")
    return {tree_sha for pair in pairs for tree_sha in pair}
