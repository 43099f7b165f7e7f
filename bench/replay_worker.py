"""The service's tasks, run by name in this process."""

import importlib
import traceback
from collections import Counter

from celery import current_app

# As the beat schedule; mails and trees come from nowhere here.
SWEEPS = ("builds.sweep", "lab.sweep", "detection.sweep", "reports.sweep")
_WORKERS = ("builds", "lab", "detection", "reports")
# More tasks than this for one question is a service that keeps itself busy.
_MOST_TASKS = 200_000


class BrokenError(Exception):
    """The service answered with an error of its own, or did not come to rest."""


class Worker:
    """What was asked of workers, done in this process: each question once, in the order in which it was asked."""

    def __init__(self) -> None:
        for queue in _WORKERS:
            importlib.import_module(f"workers.{queue}")
        self._asked: dict[tuple[str, tuple[int | str, ...]], None] = {}
        self.done = 0
        self.failures: Counter[str] = Counter()
        self.last_failure = ""

    def send(self, name: str, arguments: tuple[int | str, ...]) -> None:
        self._asked.setdefault((name, arguments))

    def work(self) -> bool:
        """Everything that was asked for; False when there was nothing."""
        before = self.done
        while self._asked:
            name, arguments = next(iter(self._asked))
            del self._asked[name, arguments]
            try:
                current_app.tasks[name](*arguments)
            except Exception as error:  # noqa: BLE001 (a worker lives on as well; a sweep asks again)
                self.failures[f"{name}: {type(error).__name__}: {error}"] += 1
                self.last_failure = traceback.format_exc()
            self.done += 1
            if self.done - before > _MOST_TASKS:
                raise BrokenError(f"{name}{arguments} and others are asked for again and again")
        return self.done > before
