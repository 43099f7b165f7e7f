"""Real workers compute a site anew: one is killed in a chunk, the broker is emptied, and each row counts once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from celery import Celery
from django.conf import settings

from server.core import tasks
from server.detection.models import Comparison, Finding, RecomputationChunk
from server.detection.recompute import chunks, following
from tests.builders import build_series
from tests.detection.heads.histories import History
from tests.detection.measured import STEADY, judge_series, measured_trial, physical
from tests.web.conftest import database_url

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.real(minutes=1)]
ROOT = Path(__file__).resolve().parents[2]
FINDINGS = 8
Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Of a broker that this test has for itself; tasks are sent there."""
    prefix = f"{tmp_path.name}:"
    app = Celery(broker=settings.CELERY_BROKER_URL)
    app.conf.broker_transport_options = {"global_keyprefix": prefix}
    monkeypatch.setattr(tasks, "current_app", app)
    monkeypatch.setattr(tasks, "send", tasks.publish)
    yield prefix
    empty(prefix)
    app.close()


def empty(prefix: str) -> None:
    with redis.Redis.from_url(settings.CELERY_BROKER_URL.replace("redis+socket:", "unix:")) as broker:
        for key in broker.scan_iter(f"{prefix}*"):
            broker.delete(key)


@pytest.fixture
def start(prefix: str, tmp_path: Path) -> Iterator[Start]:
    """Workers of one process that end with the test."""
    environment = {**os.environ, "TIDEMARK_DATABASE_URL": database_url(), "TIDEMARK_REDIS_PREFIX": prefix}
    words = [sys.executable, "-m", "celery", "-A", "tests.detection.slow_worker", "worker", "--concurrency", "1"]
    started: list[subprocess.Popen[bytes]] = []
    with (tmp_path / "log").open("wb") as log:

        def begin() -> "subprocess.Popen[bytes]":
            name = ["--queues", "detection", "--hostname", f"w{len(started)}@%h"]
            worker = subprocess.Popen(
                [*words, *name], cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            started.append(worker)
            return worker

        yield begin
        for worker in started:
            kill(worker)


def kill(worker: "subprocess.Popen[bytes]") -> None:
    """It and its processes: none can put anything in order."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def killed_in_a_chunk(worker: "subprocess.Popen[bytes]") -> bool:
    """Killed only where it has begun a chunk of four rows and not ended it; one that was stopped cannot move on."""
    # The server may still be about to note one more row, so that two must be left.
    begun = RecomputationChunk.objects.filter(kind="finding", taken__range=(1, 2), done_at=None, tries=1)
    if not begun.exists():
        return False
    os.killpg(worker.pid, signal.SIGSTOP)
    if begun.exists():
        kill(worker)
        return True
    os.killpg(worker.pid, signal.SIGCONT)
    return False


def test_killed_workers_and_an_emptied_broker_lose_nothing(
    start: Start, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = physical("h1", "haswell")
    for _ in range(FINDINGS):
        trial = measured_trial(build_series(), {machine: {"copy": STEADY}}, spread=0.001)
        assert judge_series(series_id=trial.series_id or 0)
    History({"t1": "haswell"}).heads(3)
    wrong = Comparison.objects.filter(session__machine=machine)
    assert wrong.update(ratio=1.5) == FINDINGS
    monkeypatch.setattr(chunks, "_ROWS_AT_ONCE", dict.fromkeys(chunks._ROWS_AT_ONCE, 4))
    monkeypatch.setattr(following, "_SILENCE_SECONDS", 2.0)
    monkeypatch.setattr(following, "_LONGEST_SECONDS", 2.0)
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.1)
    killed: list[RecomputationChunk] = []
    made, deadline = chunks.begin(), time.monotonic() + 120
    first = start()

    def tell(now: following.Going) -> None:
        assert time.monotonic() < deadline, now
        if not killed and killed_in_a_chunk(first):
            killed.append(RecomputationChunk.objects.get(kind="finding", taken__range=(1, 3), done_at=None))
            empty(prefix)
            for _ in range(2):
                start()

    following.follow(made, tell, pytest.fail)
    found = following.recount(made)
    assert killed
    assert (found.checked["finding"], found.checked["trial"], found.broken) == (FINDINGS, 3, 0)
    told = list(following.told(made))
    assert len(told) == len(set(told)) == found.found
    for finding in Finding.objects.all():
        line = f"finding {finding.pk}, h1 time of mm-basic/copy (all): ratio is 1.5, now 1"
        assert told.count(line) == 1
