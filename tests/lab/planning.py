"""Planning, as the lab's sweep does it."""

from server.lab.models import Session, Trial
from server.lab.trials.life import plan_trial, trials_to_plan, want_series_trials


def plan_series(*, series_id: int) -> list[Session]:
    """Plan the trial of this series as far as it can be, and of no other; the sessions that it has now."""
    want_series_trials()
    trials = Trial.objects.filter(pk__in=trials_to_plan(), series=series_id, purpose=Trial.Purpose.SERIES)
    return [session for trial in trials for session in plan_trial(trial_id=trial.pk)]


def series_to_plan() -> list[int]:
    """Ids of the series whose trials the sweep tries to plan, in its order."""
    want_series_trials()
    series = dict(Trial.objects.values_list("pk", "series_id"))
    return [series[pk] for pk in trials_to_plan()]
