"""Whose files are stored, and how much of them: a stolen token of a builder fills no disk."""

import gzip
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from server.builds import storage
from server.core import clock
from server.core.models import ApiToken
from server.lab.hosts import tokens
from server.lab.models import Attempt, AttemptState, Session, SessionState
from server.results.models import Measurement
from tests.api.test_agent_api import Agent
from tests.builders import build_attempt, build_build, build_builder, build_case, build_metric, build_session

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent() -> Agent:
    build_builder("forge")
    return Agent(ApiToken.Scope.BUILDER, "forge")


def claimed(state: str = AttemptState.RUNNING, builder: str = "forge") -> Attempt:
    return build_attempt(build_build(), state=state, builder=build_builder(builder), agent="agent-1")


def test_only_builders_store_files() -> None:
    build_attempt(session := build_session(state=SessionState.RUNNING), agent="agent-1")
    assert Agent(ApiToken.Scope.MACHINE, session.machine.name).put(b"x") == 403


def test_builder_without_work_stores_nothing(agent: Agent) -> None:
    assert agent.put(b"x") == 409
    claimed(builder="other")
    unclaimed = build_attempt(build_build(), state=AttemptState.QUEUED, builder=build_builder("forge"))
    assert agent.put(b"x") == 409
    Attempt.objects.filter(pk=unclaimed.pk).update(agent="agent-2", state=AttemptState.RUNNING)
    assert agent.put(b"x") == 201


@pytest.mark.parametrize("state", [AttemptState.LOST, AttemptState.CANCELED, AttemptState.DONE])
def test_files_that_waited_on_the_builder_are_taken_for_a_week(agent: Agent, state: str) -> None:
    late = claimed(state)
    Attempt.objects.filter(pk=late.pk).update(state_since=clock.now() - timedelta(days=6))
    assert agent.put(b"late") == 201
    Attempt.objects.filter(pk=late.pk).update(state_since=clock.now() - timedelta(days=8))
    assert agent.put(b"too late") == 409


def test_attempt_has_so_many_bytes_stored_and_no_more(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BYTES_OF_ATTEMPT", 1000)
    attempt = claimed()
    assert agent.put(b"a" * 600) == 201
    assert agent.put(b"a" * 600) == 200
    assert agent.put(b"b" * 600) == 409
    assert not storage.FolderStore().place(Agent.name_of(b"b" * 600)).exists()
    assert agent.put(b"c" * 400) == 201
    assert agent.put(b"") == 409
    attempt.refresh_from_db()
    assert attempt.stored_bytes == 1000
    claimed()
    assert agent.put(b"b" * 600) == 201


def test_packed_file_counts_as_large_as_it_is_unpacked(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BYTES_OF_ATTEMPT", 1_000_000)
    claimed()
    bomb = b"\0" * 2_000_000
    assert agent.put(gzip.compress(bomb), Agent.name_of(bomb), encoding="gzip") == 409
    assert not storage.FolderStore().place(Agent.name_of(bomb)).exists()


def test_of_a_builder_with_very_many_attempts_the_newest_count(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_BYTES_OF_ATTEMPT", 10)
    monkeypatch.setattr(tokens, "_MOST_ATTEMPTS", 2)
    for _ in range(4):
        claimed(AttemptState.LOST)
    assert [agent.put(bytes([number]) * 10) for number in range(3)] == [201, 201, 409]


def test_builder_that_stops_one_build_after_the_other_fills_no_disk(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_BYTES_OF_ATTEMPT", 10)
    monkeypatch.setattr(tokens, "_MOST_IN_VAIN", 30)
    codes = []
    for number in range(5):
        attempt = claimed()
        codes.append(agent.put(bytes([number]) * 10))
        Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.CANCELED, state_since=clock.now())
    assert codes == [201, 201, 201, 409, 409]
    Attempt.objects.update(state_since=clock.now() - timedelta(days=2))
    claimed()
    assert agent.put(b"another day") == 409
    assert agent.put(b"other day") == 201


def upload_of(session: Session, position: int, **changes: Any) -> dict[str, Any]:
    arm = session.boots.get(position=position).arm
    build = session.base_build if arm == "base" else session.patched_build
    cell = {"benchmark": "mm-basic", "version": "1", "metric": "time", "warmup": 1}
    measurements = [{**cell, "case": f"case-{number}", "values": [9.0, 1.5, 1.25]} for number in range(40)]
    facts = {
        "uarch": "haswell",
        "vendor": "GenuineIntel",
        "arch": "x86_64",
        "core_types": [{"name": "all", "cpus": "0"}],
    }
    return {
        "agent": "agent-0001", "outcome": "measured", "boot_id": f"{position:08x}-0000-4000-8000-000000000000",
        "build_id": build.build_id, "facts": facts, "conditions": {"load": 1}, "measurements": measurements, **changes,
    }  # fmt: skip


@pytest.fixture
def session() -> Session:
    build_metric()
    for number in range(40):
        build_case(f"case-{number}")
    session = build_session(state=SessionState.RUNNING, boots_per_side=4)
    build_attempt(session, agent="agent-0001")
    return session


def uploader(session: Session) -> tuple[Agent, str]:
    return Agent(ApiToken.Scope.MACHINE, session.machine.name), f"attempts/session-{session.pk}-1/boots"


def test_result_of_a_boot_costs_few_queries_however_much_it_holds(session: Session) -> None:
    """A base kernel's boot tells of its machine besides: its facts, its kinds of cores, when it was seen."""
    agent, boots = uploader(session)
    # The first use of a token, facts and versions that are new.
    for position in (0, 1):
        agent.post(f"{boots}/{position}", **upload_of(session, position))
    costs = []
    for position in (2, 3):
        sent = upload_of(session, position)
        with CaptureQueriesContext(connection) as asked:
            agent.post(f"{boots}/{position}", **sent)
        said = [query["sql"] for query in asked.captured_queries]
        costs.append([sql for sql in said if not sql.startswith(("SAVEPOINT", "RELEASE SAVEPOINT", "BEGIN", "COMMIT"))])
    patched, base = costs
    assert len(patched) <= 8, patched
    assert len(base) <= 14, base


def test_result_that_comes_again_is_there_already_and_one_with_other_values_is_a_conflict(session: Session) -> None:
    agent, boots = uploader(session)
    sent = upload_of(session, 0)
    assert agent.post(f"{boots}/0", **sent) == {"stored": True, "continue": True}
    stored = list(Measurement.objects.order_by("case_id").values_list("case_id", "values"))
    assert agent.post(f"{boots}/0", **sent) == {"stored": False, "continue": True}
    other = [{**cell, "values": [9.0, 7.0]} for cell in sent["measurements"]]
    assert agent.post(f"{boots}/0", 409, **{**sent, "measurements": other})["code"] == "conflict"
    # Of another running kernel it is another result: it came too late, and nothing is wrong with it.
    late = {**sent, "boot_id": "ffffffff-0000-4000-8000-000000000000", "measurements": other}
    assert agent.post(f"{boots}/0", **late)["stored"] is False
    assert list(Measurement.objects.order_by("case_id").values_list("case_id", "values")) == stored


def test_of_a_cell_that_comes_twice_the_first_is_kept(session: Session) -> None:
    agent, boots = uploader(session)
    sent = upload_of(session, 0)
    twice = [sent["measurements"][0], {**sent["measurements"][0], "values": [9.0, 7.0]}]
    assert agent.post(f"{boots}/0", **{**sent, "measurements": twice})["stored"]
    assert Measurement.objects.get().values == [9.0, 1.5, 1.25]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("case", "", "may not be blank"),
        ("case", "x" * 61, "no more than 60 characters"),
        ("version", None, "may not be null"),
        ("values", [1.0, "2"], "not a list of numbers"),
        ("values", [1.0, True], "not a list of numbers"),
        ("values", [1, 10**400], "too large"),
        ("warmup", -1, "greater than or equal to 0"),
        ("warmup", "1", "a whole number"),
    ],
)
def test_what_is_wrong_with_a_measurement_is_said_and_where(
    session: Session, field: str, value: object, said: str
) -> None:
    agent, boots = uploader(session)
    sent = upload_of(session, 0)
    sent["measurements"][3][field] = value
    errors = agent.post(f"{boots}/0", 400, **sent)["errors"]["measurements"]
    assert said in errors["3"][field][0]
    assert not Measurement.objects.exists()


@pytest.mark.parametrize(("name", "item"), [("measurements", {}), ("measurements", 1), ("notes", 1)])
def test_a_list_that_is_too_long_is_refused_as_a_whole(session: Session, name: str, item: object) -> None:
    agent, boots = uploader(session)
    told = agent.post(f"{boots}/0", 400, **{**upload_of(session, 0), name: [item] * 20_000})
    (said,) = told["errors"][name]
    assert said.startswith("more than ")
    assert not Measurement.objects.exists()
