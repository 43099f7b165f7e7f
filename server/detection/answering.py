"""A trial that is over answers a question: its result goes to whoever asked, once."""

from collections.abc import Callable

from django.db import transaction

from server.core import clock
from server.core.errors import DomainError
from server.detection.bisecting import answering as bisecting
from server.detection.heads import answering as heads
from server.detection.lifecycle import answering as lifecycle
from server.detection.noise import answering as noise
from server.detection.series import recording as series
from server.lab.models import Trial
from server.sources.models import Series

Handler = Callable[[Trial], None]


HANDLERS: dict[str, Handler] = {
    Trial.Purpose.SERIES: series.answer,
    Trial.Purpose.HEAD: heads.answer,
    Trial.Purpose.CONFIRM: heads.answer,
    Trial.Purpose.PATCH: bisecting.answer,
    Trial.Purpose.BISECT: bisecting.answer,
    Trial.Purpose.REVERT: bisecting.answer,
    Trial.Purpose.LAYOUT: lifecycle.answer,
    Trial.Purpose.FIX: lifecycle.answer,
    Trial.Purpose.NOISE: noise.answer,
}


def answer_trial(*, trial_id: int) -> bool:
    """Hand a trial that is over to whoever asked; False while it is not over, and when that was done already.

    The handler and the mark that it was called are one transaction, so that a process may be killed anywhere.
    Raises DomainError `trial-unknown`.
    """
    with transaction.atomic():
        row = Trial.objects.filter(pk=trial_id).values_list("pk", "series_id").first()
        if row is None:
            raise DomainError("trial-unknown", f"there is no trial {trial_id}")
        # The series before its trial, in the order in which whoever replaces a series holds them.
        Series.objects.select_for_update(no_key=True).filter(pk=row[1]).first()
        trial = Trial.objects.select_for_update(of=("self",), no_key=True).get(pk=trial_id)
        if trial.state not in Trial.FINAL or trial.answered_at is not None:
            return False
        HANDLERS[trial.purpose](trial)
        Trial.objects.filter(pk=trial.pk).update(answered_at=clock.now())
    return True
