"""Steps as server-sent events, from the real web process: each is told once, and listeners keep nobody waiting."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest
from django.db import connection

from server.api.transitions import MOST_BEHIND, NewSteps
from server.core.models import Transition
from server.web.streams import MOST_OF_ONE
from tests.web.conftest import STANDSTILL, Web

PATH = "/api/v1/transitions/"


def step(subject: str = "session", number: int = 7, after: str = "running") -> int:
    made = Transition.objects.create(trace="t", subject=subject, subject_id=number, before="planned", after=after)
    return int(made.pk)


@contextmanager
def listening(web: Web, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a stream that has begun."""
    with httpx2.stream("GET", f"{web.address}{PATH}{query}", headers=headers, timeout=STANDSTILL) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines).startswith("retry:")
        yield events(lines)


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Each with its `id`, `event` and `data`; one without a name is the place where the stream begins."""
    told: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name:
            told[name] = json.loads(value) if name == "data" else value
        elif told:
            yield told
            told = {}


def test_steps_are_told_as_they_come_and_of_the_rows_that_were_asked_for(web: Web) -> None:
    with listening(web, "?subject=session&subject=finding&id=7") as told:
        assert "event" not in next(told)
        step(number=8)
        step("build")
        step("delivery")
        wanted = step()
        found = next(told)
    assert (found["id"], found["event"]) == (str(wanted), "transition")
    kept = {name: found["data"][name] for name in ("subject", "id", "before", "after")}
    assert kept == {"subject": "session", "id": 7, "before": "planned", "after": "running"}


def test_reader_that_comes_again_gets_what_it_missed_once(web: Web) -> None:
    first, second = step(after="running"), step(after="done")
    with listening(web, **{"Last-Event-ID": str(first)}) as told:
        third = step("finding")
        assert [next(told)["id"] for _ in range(2)] == [str(second), str(third)]


def test_reader_that_missed_too_much_is_told_to_look_at_all_again(web: Web) -> None:
    rows = [Transition(trace="t", subject="boot", subject_id=1, after="done") for _ in range(MOST_BEHIND + 2)]
    first = min(row.pk for row in Transition.objects.bulk_create(rows))
    with listening(web, f"?after={first}") as told:
        assert next(told)["event"] == "reset"


def test_listeners_keep_nobody_waiting_and_one_client_has_few(web: Web) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_OF_ONE):
            next(stack.enter_context(listening(web)))
        refused = web.get(PATH)
        assert (refused.status_code, refused.headers["content-type"]) == (503, "application/problem+json")
        assert web.get("/healthz").status_code == web.get("/api/v1/uarchs/").status_code == 200
    deadline = time.monotonic() + STANDSTILL
    while True:
        # Those who left have made room.
        with httpx2.stream("GET", f"{web.address}{PATH}", timeout=STANDSTILL) as answer:
            if answer.status_code == 200:
                return
        assert time.monotonic() < deadline


@pytest.mark.parametrize("query", ["?subject=delivery", "?id=x", "?after=-1", "?after=" + "9" * 40, "?typo=1"])
def test_question_that_is_not_understood_is_no_stream(web: Web, query: str) -> None:
    answer = web.get(f"{PATH}{query}")
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")


@pytest.mark.django_db(transaction=True)
def test_step_of_a_transaction_that_ended_late_is_told_too() -> None:
    steps = NewSteps()
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('core_transition', 'id'))")
        late = cursor.fetchone()[0]
    soon = step()
    assert [row.pk for row in steps.look()] == [soon]
    Transition.objects.create(pk=late, trace="t", subject="boot", subject_id=1, after="done")
    assert [row.pk for row in steps.look()] == [late]
    assert steps.look() == []
