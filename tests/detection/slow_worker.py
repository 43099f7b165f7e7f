"""A worker that needs a moment for each row: `celery -A tests.detection.slow_worker worker`."""

import time

from celery.signals import worker_process_init

import workers  # noqa: F401 (its signals and tasks)
from server.celery import app

__all__ = ["app"]


@worker_process_init.connect
def _take_time(**_kwargs: object) -> None:
    from server.detection.recompute import chunks
    from server.detection.recompute.outcomes import Recomputed, recomputed

    def slowly(kind: str, pk: int) -> Recomputed | None:
        time.sleep(0.4)
        return recomputed(kind, pk)

    vars(chunks)["recomputed"] = slowly
