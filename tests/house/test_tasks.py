"""Tasks, queues and the schedule name each other by strings; nothing but these tests would see a slip."""

import ast
from pathlib import Path

import pytest
from celery import Celery

from server.celery import app as service
from tests.house.sources import name_of, python_files
from workers import load_tasks


@pytest.fixture(scope="module")
def app() -> Celery:
    load_tasks()
    return service


def _own_tasks(app: Celery) -> set[str]:
    return {name for name in app.tasks if not name.startswith("celery.")}


def test_every_task_is_named_after_a_queue_that_is_consumed(app: Celery) -> None:
    queues = {queue.name for queue in app.conf.task_queues}
    assert _own_tasks(app)
    assert {name for name in _own_tasks(app) if name.partition(".")[0] not in queues} == set()


def test_every_queue_has_a_module_with_its_tasks(app: Celery) -> None:
    for queue in app.conf.task_queues:
        tasks = [task for name, task in app.tasks.items() if name.startswith(f"{queue.name}.")]
        assert tasks, f"no task for queue {queue.name}"
        assert {type(task).__module__ for task in tasks} == {f"workers.{queue.name}"}


def test_every_entry_of_the_schedule_is_a_task_sent_to_its_own_queue(app: Celery) -> None:
    entries = app.conf.beat_schedule.values()
    assert {entry["task"] for entry in entries} <= _own_tasks(app)
    for entry in entries:
        assert entry["options"]["queue"] == entry["task"].partition(".")[0]


def test_every_task_that_the_server_asks_for_exists(app: Celery) -> None:
    asked = {name: where for path in python_files("server", "workers") for name, where in _enqueued(path)}
    assert asked
    assert {name: where for name, where in asked.items() if name not in _own_tasks(app)} == {}


def _enqueued(path: Path) -> list[tuple[str, str]]:
    """Names in calls like `enqueue("builds.start", 1)`."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return [
        (call.args[0].value, f"{name_of(path)}:{call.lineno}")
        for call in calls
        if getattr(call.func, "id", getattr(call.func, "attr", "")) == "enqueue"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ]
