"""What agents on measured machines say beyond the bare result."""

import json
from pathlib import Path

import pytest
from django.test import Client
from tidemark_agent.benchmarks.bundle import find_benchmark

from server.api.v1.agent import MOST_NOTES
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt, AttemptState, Boot, BootState, Session, SessionState
from tests.builders import build_case, build_metric, build_session

pytestmark = pytest.mark.django_db
AGENT = "agent-0001"


@pytest.fixture
def session() -> Session:
    build_metric()
    build_case()
    session = build_session(state=SessionState.RUNNING)
    Attempt.objects.create(
        key="session-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.RUNNING, agent=AGENT
    )
    return session


def post(session: Session, path: str, status: int, **body: object) -> dict[str, object]:
    token = issue_token(name="m", scope=ApiToken.Scope.MACHINE, subject=session.machine.name)
    response = Client().post(
        f"/api/v1/agent/attempts/session-1/{path}",
        json.dumps({"agent": AGENT, **body}),
        content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert response.status_code == status, response.content
    return dict(response.json())


def test_heartbeat_without_the_new_words_is_as_good(session: Session) -> None:
    assert post(session, "heartbeat", 200, progress="p") == {"continue": True}
    assert post(session, "heartbeat", 200, progress="p", away_seconds=900, log="a\0b\n") == {"continue": True}
    assert Attempt.objects.get().log == "ab\n"


@pytest.mark.parametrize(
    "body", [{"away_seconds": 3601}, {"away_seconds": -1}, {"away_seconds": "long"}, {"log": "x" * 65_537}]
)
def test_heartbeat_that_asks_too_much_is_refused(session: Session, body: dict[str, object]) -> None:
    post(session, "heartbeat", 400, progress="", **body)


def test_conditions_are_stored_as_they_are(session: Session) -> None:
    conditions = {"settings": [{"name": "aslr", "outcome": "set"}], "samples": [], "odd": {"nested": [1, 2.5, None]}}
    post(session, "boots/0", 200, outcome="panic", reason="r", conditions=conditions)
    boot = Boot.objects.get(session=session, position=0)
    assert (boot.state, boot.conditions.document) == (BootState.FAILED, conditions)


def test_result_with_very_much_to_say_is_stored_with_the_beginning_of_it(session: Session) -> None:
    post(session, "boots/0", 200, outcome="panic", reason="CPUs are slowed for heat; " * 1000)
    boot = Boot.objects.get(session=session, position=0)
    assert (boot.state, len(boot.reason)) == (BootState.FAILED, len("panic: ") + 4000)
    post(session, "boots/1", 400, outcome="panic", reason=["no", "text"])
    post(session, "heartbeat", 200, progress="x" * 9000)
    assert Attempt.objects.get().progress == "x" * 200
    post(session, "end", 200, outcome="failed", reason="x" * 9000)


def test_conditions_that_are_too_large_are_refused(session: Session) -> None:
    post(session, "boots/0", 400, outcome="panic", conditions={"samples": ["x" * 1024] * 1024})
    post(session, "boots/0", 400, outcome="panic", conditions=["no", "object"])
    assert Boot.objects.get(session=session, position=0).state == BootState.PLANNED


def test_result_that_is_larger_than_any_machines_is_refused_whole(session: Session) -> None:
    names = {"benchmark": "b", "version": "1", "case": "c", "metric": "m", "warmup": 0}
    many = [{**names, "values": [1] * 90_000}] * 6
    answer = post(session, "boots/0", 400, outcome="measured", measurements=many)
    assert answer["errors"] == {"measurements": ["more than 500000 values"]}
    post(session, "boots/0", 400, outcome="panic", notes=[{"reason": "x" * 1024}] * 5000)
    post(session, "boots/0", 400, outcome="panic", facts={"flags": ["x" * 1024] * 3000})
    assert Boot.objects.get(session=session, position=0).state == BootState.PLANNED


def test_every_case_of_every_kind_of_core_may_have_been_skipped(session: Session) -> None:
    folders = (path.parent for path in Path("agents/benchmarks").glob("*/benchmark.toml"))
    cases = [case for folder in folders for case in find_benchmark(folder.name).cases]
    kinds = ("lion-cove", "skymont", "crestmont")
    notes = [{"case": case, "core_type": kind, "outcome": "skipped"} for kind in kinds for case in cases]
    post(session, "boots/0", 200, outcome="timeout", reason="r", notes=notes)
    assert len(Boot.objects.get(session=session, position=0).notes) == len(notes)
    post(session, "boots/1", 400, outcome="timeout", notes=[{}] * (MOST_NOTES + 1))


def test_note_is_kept_flat_and_short(session: Session) -> None:
    """Every page of the session reads the notes of all its boots."""
    note = {"benchmark": "b", "case": "c" * 999, "outcome": "failed", "reason": "r" * 9999, "evidence": "e" * 9999}
    odd = {"k": [[]] * 130, "reason": ["no", "text"], "values": [1.5, "nan", [[]]]}
    post(session, "boots/0", 200, outcome="panic", reason="r", notes=[note, odd])
    assert Boot.objects.get(session=session, position=0).notes == [
        {"benchmark": "b", "case": "c" * 60, "outcome": "failed", "reason": "r" * 500, "evidence": "e" * 4096},
        {"values": [1.5, "nan"]},
    ]


def test_notes_without_end_are_counted_from_some_number_on(session: Session) -> None:
    notes = [{"case": f"c{number}", "reason": "x" * 400, "evidence": "e" * 4000} for number in range(900)]
    post(session, "boots/0", 200, outcome="panic", reason="r", notes=notes)
    kept = Boot.objects.get(session=session, position=0).notes
    assert len(json.dumps(kept)) < 300 * 1024
    assert ["evidence" in note for note in kept[:20]] == [True] * 16 + [False] * 4
    assert kept[-1]["reason"] == f"{901 - len(kept)} more notes are not kept"


@pytest.mark.parametrize("name", ["facts", "conditions"])
def test_document_of_very_many_parts_is_refused(session: Session, name: str) -> None:
    parts: dict[str, object] = {"parts": [1] * 250_000}
    assert "items of JSON" in str(post(session, "boots/0", 400, outcome="panic", **{name: parts}))


def test_agents_log_and_its_hosts_name_are_shown_to_staff_alone(session: Session, admin_client: Client) -> None:
    post(session, "heartbeat", 200, progress="", log='{"event": "step", "html": "<b>"}\n')
    Attempt.objects.update(host="zx7.lab.internal")
    page = admin_client.get(f"/sessions/{session.pk}/").content.decode()
    for told in ("Log of session-1", "&lt;b&gt;", "zx7.lab.internal"):
        assert told in page
    public = Client().get(f"/sessions/{session.pk}/").content.decode()
    assert "session-1" in public
    for hidden in ("Log of session-1", "&lt;b&gt;", "zx7"):
        assert hidden not in public
