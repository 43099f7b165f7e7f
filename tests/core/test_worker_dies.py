"""A real worker whose tasks want too much memory, or are killed: it goes on, and they do not come back for ever."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from django.conf import settings

from server.core.models import Begun
from tests.web.conftest import database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.real(minutes=1)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def send(tmp_path: Path) -> Iterator[Callable[[str, int], object]]:
    """Sends a task to a worker of one process, which lives to the end of the test."""
    prefix = f"{tmp_path.name}:"
    environment = {**os.environ, "TIDEMARK_DATABASE_URL": database_url(), "TIDEMARK_REDIS_PREFIX": prefix}
    environment |= {"TIDEMARK_WORKER_MEMORY_MB": "512", "TIDEMARK_LOG_LEVEL": "WARNING"}
    words = [sys.executable, "-m", "celery", "-A", "tests.core.hungry", "worker", "--concurrency", "1", "-Q", "upkeep"]
    app = Celery(broker=settings.CELERY_BROKER_URL)
    app.conf.broker_transport_options = {"global_keyprefix": prefix}

    def publish(name: str, argument: int) -> object:
        return app.send_task(name, args=[argument], queue="upkeep")

    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(words, cwd=ROOT, env=environment, stdout=log, stderr=log) as worker,
    ):
        try:
            yield publish
            assert worker.poll() is None, (tmp_path / "log").read_text()
        finally:
            worker.terminate()
            app.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited a minute in vain"
        time.sleep(0.1)


@pytest.mark.parametrize(("name", "argument"), [("upkeep.eat", 900), ("upkeep.die", 1)])
def test_task_that_its_process_does_not_outlive_is_given_up(
    send: Callable[[str, int], object], name: str, argument: int
) -> None:
    """Killed, or without memory: the worker goes on, and so would the task for ever, as the sweeps send it again."""
    of_task = Begun.objects.filter(key=f"{name} {argument}")
    for times in range(1, 4):
        send(name, argument)
        until(lambda: of_task.count() >= times)  # noqa: B023 (waited for here)
    send(name, argument)
    until(lambda: of_task.filter(given_up=True).count() >= 3)
