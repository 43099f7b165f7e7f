"""The detection queue: judging series whose sessions are over."""

from celery import shared_task

from server.core.tasks import enqueue
from server.detection.scope import series_awaiting_judgement
from server.detection.services import judge_series


@shared_task(name="detection.judge")
def judge(series_id: int) -> None:
    judge_series(series_id=series_id)


@shared_task(name="detection.sweep")
def sweep() -> None:
    """Each series gets its own task, so that one that cannot be judged does not stand in the way of others."""
    for series_id in series_awaiting_judgement():
        enqueue("detection.judge", series_id)
