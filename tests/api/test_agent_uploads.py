"""Whose files are stored, and how much of them: a stolen token of a builder fills no disk."""

import gzip
from datetime import timedelta

import pytest

from server.builds import storage
from server.core import clock
from server.core.models import ApiToken
from server.lab.hosts import tokens
from server.lab.models import Attempt, AttemptState, SessionState
from tests.api.test_agent_api import Agent
from tests.builders import build_attempt, build_build, build_builder, build_session

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
