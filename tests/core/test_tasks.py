import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import structlog
from celery import Celery, current_app
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError

from server.celery import QUEUES
from server.core import tasks

SentTasks = list[tuple[str, tuple[int | str, ...]]]


@pytest.mark.django_db(transaction=True)
def test_task_is_sent_after_commit_and_not_before(sent_tasks: SentTasks) -> None:
    with transaction.atomic():
        tasks.enqueue("detection.look", 7)
        assert sent_tasks == []
    assert sent_tasks == [("detection.look", (7,))]


@pytest.mark.django_db(transaction=True)
def test_task_of_a_rolled_back_transaction_is_never_sent(sent_tasks: SentTasks) -> None:
    with transaction.atomic():
        tasks.enqueue("detection.look", 7)
        transaction.set_rollback(True)
    assert sent_tasks == []


def test_unreachable_broker_loses_the_wake_up_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(current_app, "send_task", refuse)
    with structlog.testing.capture_logs() as logs:
        tasks.publish("lab.dispatch", ())
    assert [line["event"] for line in logs] == ["wake_up_lost"]


def test_what_may_wait_is_taken_after_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which a worker asks Redis: a site that is computed anew stands in the way of no verdict."""
    app = Celery(broker=settings.CELERY_BROKER_URL, set_as_current=False)
    app.conf.broker_transport_options = {"global_keyprefix": f"{tmp_path.name}:"}
    monkeypatch.setattr(tasks, "current_app", app)
    for name in ("detection.recompute", "detection.look", "detection.recompute", "detection.answer"):
        tasks.publish(name, (7,))
    taken: list[str] = []
    with app.connection_for_read() as connection, connection.SimpleQueue("detection") as queue:
        while len(taken) < 4:
            message = queue.get(timeout=10)
            taken.append(message.headers["task"])
            message.ack()
    assert taken == ["detection.look", "detection.answer", "detection.recompute", "detection.recompute"]


def test_silent_broker_holds_nobody_up_and_equal_wake_ups_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[str] = []
    called, answer = threading.Event(), threading.Event()

    def hang(name: str, **_kwargs: object) -> None:
        called.set()
        answer.wait(30)
        arrived.append(name)

    monkeypatch.setattr(current_app, "send_task", hang)
    post = tasks._Post()
    post.take("lab.dispatch", ())
    assert called.wait(30)
    for _ in range(5000):
        post.take("builds.sweep", ())
    post.take("detection.look", (7,))
    answer.set()
    post._wait_a_little()
    assert arrived == ["lab.dispatch", "builds.sweep", "detection.look"]


@pytest.mark.django_db(transaction=True)
def test_sender_that_fails_unexpectedly_does_not_fail_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_name: str, _args: tuple[int | str, ...]) -> None:
        raise ValueError("no such queue")

    monkeypatch.setattr(tasks, "send", fail)
    with transaction.atomic():
        tasks.enqueue("detection.look", 7)


def test_process_that_is_no_worker_knows_the_queues_it_sends_to() -> None:
    script = (
        "import django, sys; django.setup(); from celery import current_app; "
        "assert 'workers' not in sys.modules; print(*sorted(current_app.amqp.queues))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "server.settings"}
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", script], cwd=root, env=environment, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == sorted(QUEUES)
