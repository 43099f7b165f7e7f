"""What to build and to boot for a series."""

from datetime import datetime

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from server.lab.models import Session, Trial
from server.lab.trials.asking import USUAL_LOOKS, Ask, want_trial
from server.lab.trials.ordering import boot_order
from server.lab.trials.planning import plan_trial
from server.sources.models import Series, SeriesState

__all__ = [
    "boot_order",
    "plan_series",
    "series_to_plan",
    "want_series_trial",
    "want_series_trials",
    "wanted_benchmarks",
]

_SECONDS_PER_HOUR = 3600.0


def plan_series(*, series_id: int) -> list[Session]:
    """Want the kernels of an applied series; once all of them are final, plan a session on each good machine.

    Returns the sessions of its trial. Safe to repeat.
    """
    series = Series.objects.select_related("base__tree", "head").filter(pk=series_id, state=SeriesState.APPLIED).first()
    trial = want_series_trial(series) if series is not None else None
    return plan_trial(trial_id=trial.pk) if trial is not None else []


def want_series_trial(series: Series) -> Trial | None:
    """The trial of what an applied series costs; None for one that is not applied.

    A series that was measured before there were trials gets none: its sessions are judged as they were planned.
    """
    if series.state != SeriesState.APPLIED or series.base is None or series.head is None:
        return None
    if Session.objects.filter(series=series, trial=None).exists():
        return None
    return want_trial(
        Ask(
            key=f"series:{series.pk}",
            purpose=Trial.Purpose.SERIES,
            base=series.base,
            patched=series.head,
            looks=USUAL_LOOKS,
            trace=series.trace,
            series=series,
            benchmarks=tuple(wanted_benchmarks(series)),
            budget_seconds=settings.SERIES_HOURS * _SECONDS_PER_HOUR or None,
        )
    )


def want_series_trials(*, since: datetime | None = None) -> int:
    """Want the trial of every series applied `since` then that has none and no sessions; returns how many.

    A sweep asks for those of late: that all others have theirs is looked at now and then.
    """
    asked = Trial.objects.filter(purpose=Trial.Purpose.SERIES, series=OuterRef("pk"))
    waiting = _without_sessions().filter(~Exists(asked)).select_related("base__tree", "head")
    if since is not None:
        waiting = waiting.filter(state_since__gte=since)
    return sum(want_series_trial(series) is not None for series in waiting.order_by("id"))


def wanted_benchmarks(series: Series) -> list[str]:
    """What a session of this series measures: what its paths ask for, with the default set, and what its tree wants.

    Empty, which means everything, for a series about which no rule spoke.
    """
    tree = series.base.tree.benchmarks if series.base else []
    return sorted({*series.benchmarks, *tree}) if series.benchmarks else []


def series_to_plan() -> list[int]:
    """Ids of applied series that lack sessions: trees of high priority first, then the oldest."""
    over = Trial.objects.filter(purpose=Trial.Purpose.SERIES, state__in=Trial.FINAL)
    waiting = _without_sessions().exclude(pk__in=over.values("series"))
    return list(waiting.order_by("-base__tree__priority", "id").values_list("id", flat=True))


def _without_sessions() -> QuerySet[Series]:
    sessions = Session.objects.filter(series=OuterRef("pk"))
    return Series.objects.filter(~Exists(sessions), state=SeriesState.APPLIED)
