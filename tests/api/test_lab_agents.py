"""What agents on measured machines say beyond the bare result."""

import json

import pytest
from django.test import Client

from server.core.models import ApiToken
from server.core.tokens import issue_token
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
    assert (boot.state, boot.conditions) == (BootState.FAILED, conditions)


def test_conditions_that_are_too_large_are_refused(session: Session) -> None:
    post(session, "boots/0", 400, outcome="panic", conditions={"samples": ["x" * 1024] * 1024})
    post(session, "boots/0", 400, outcome="panic", conditions=["no", "object"])
    assert Boot.objects.get(session=session, position=0).state == BootState.PLANNED


def test_agents_log_is_shown_on_the_sessions_page(session: Session) -> None:
    post(session, "heartbeat", 200, progress="", log='{"event": "step", "html": "<b>"}\n')
    page = Client().get(f"/sessions/{session.pk}/").content.decode()
    assert "Log of session-1" in page
    assert "&lt;b&gt;" in page
