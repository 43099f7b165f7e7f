"""The agent's calls over HTTP: tokens, forms, claims, artifacts and results, as docs/agent-protocol.md says."""

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from server.builds.models import Build, BuildState
from server.builds.storage import FolderStore
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.models import Attempt, AttemptState, Builder, Host, Session, SessionState
from server.lab.work import LOCAL_BUILDER, local_builder
from server.results.models import Measurement
from tests.builders import (
    build_attempt,
    build_build,
    build_builder,
    build_case,
    build_machine,
    build_metric,
    build_session,
)

pytestmark = pytest.mark.django_db
AGENT = "agent-0001"


class Agent:
    """Speaks to the API as an agent of one machine or as the builder."""

    def __init__(self, scope: ApiToken.Scope, subject: str, *, known: bool = True) -> None:
        """The host that holds the token is made if need be, unless it shall not be `known`."""
        if known and scope == ApiToken.Scope.BUILDER:
            build_builder(subject, arches=[])
        elif known and scope == ApiToken.Scope.MACHINE:
            build_machine(subject)
        self.client = Client()
        self.auth = f"Bearer {issue_token(name=subject, scope=scope, subject=subject)}"

    def post(self, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
        response = self.client.post(
            f"/api/v1/agent/{path}", json.dumps(body), "application/json", headers={"Authorization": self.auth}
        )
        assert response.status_code == status, response.content
        answer: dict[str, Any] = response.json()
        return answer

    @staticmethod
    def name_of(content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def put(self, content: bytes, sha256: str | None = None, encoding: str = "identity") -> int:
        return self.client.put(
            f"/api/v1/agent/artifacts/{sha256 or self.name_of(content)}",
            content,
            "application/octet-stream",
            headers={"Authorization": self.auth, "Content-Encoding": encoding},
        ).status_code

    def claim(self, key: str, status: int = 200, agent: str = AGENT) -> dict[str, Any]:
        return self.post(f"attempts/{key}/claim", status, agent=agent, version="0.1.0", host="here")


def builder() -> Agent:
    return Agent(ApiToken.Scope.BUILDER, LOCAL_BUILDER)


def busy_builder() -> Agent:
    """One whose files are awaited."""
    build_attempt(build_build(state=BuildState.RUNNING), agent=AGENT)
    return builder()


def dispatched_build() -> Build:
    build = build_build(state=BuildState.DISPATCHED)
    Attempt.objects.create(
        key="build-1", number=1, build=build, adapter="local", slots=1, state=AttemptState.QUEUED, trace=build.trace
    )
    return build


def dispatched_session() -> Session:
    build_metric()
    build_case()
    session = build_session(state=SessionState.DISPATCHED)
    Attempt.objects.create(
        key="session-1", number=1, session=session, adapter="local", slots=1, state=AttemptState.QUEUED,
        trace=session.trace,
    )  # fmt: skip
    return session


def test_call_without_a_valid_token_is_refused() -> None:
    client = Client()
    for headers in ({}, {"Authorization": "Bearer tm_000000000000_wrong"}, {"Authorization": "Basic eDp5"}):
        response = client.post("/api/v1/agent/attempts/build-1/end", headers=headers)
        assert response.status_code == 401
        assert response.headers["Content-Type"] == "application/problem+json"
        assert response.headers["WWW-Authenticate"] == 'Bearer realm="tidemark"'


def test_revoked_token_is_refused() -> None:
    dispatched_build()
    agent = builder()
    ApiToken.objects.update(revoked_at="2026-01-01T00:00:00Z")
    agent.claim("build-1", 401)


def test_claim_gives_the_whole_assignment_of_a_build() -> None:
    build = dispatched_build()
    order = builder().claim("build-1")
    assert (order["kind"], order["key"], order["trace"]) == ("build", "build-1", build.trace)
    assert order["build"]["commit"] == build.revision.sha
    assert order["build"]["config"]["fragment"] == "CONFIG_64BIT=y\n"
    assert order["build"]["sandbox"] == "bwrap"
    build.refresh_from_db()
    assert build.state == BuildState.RUNNING


def test_second_agent_gets_409_superseded() -> None:
    dispatched_build()
    agent = builder()
    agent.claim("build-1")
    assert agent.claim("build-1", 409, agent="agent-0002")["code"] == "superseded"


def test_built_kernel_is_accepted_once_with_its_artifacts() -> None:
    build = dispatched_build()
    agent = builder()
    agent.claim("build-1")
    image = b"kernel image"
    digest = hashlib.sha256(image).hexdigest()
    result: dict[str, Any] = {
        "agent": AGENT, "outcome": "built", "seconds": 12.5, "build_id": "abcd",
        "artifacts": [{"kind": "image", "sha256": digest, "size": len(image)}],
    }  # fmt: skip
    assert agent.post("attempts/build-1/build", 400, **result)["code"] == "artifact-missing"
    assert agent.put(image) == 201
    assert agent.put(image) == 200
    assert agent.post("attempts/build-1/build", **result) == {"stored": True}
    assert agent.post("attempts/build-1/build", **result) == {"stored": False}
    build.refresh_from_db()
    assert (build.state, build.build_id, build.artifacts.count()) == (BuildState.BUILT, "abcd", 1)
    assert Attempt.objects.get().state == AttemptState.DONE


def test_failed_build_keeps_reason_and_log() -> None:
    build = dispatched_build()
    agent = builder()
    agent.claim("build-1")
    agent.post(
        "attempts/build-1/build", agent=AGENT, outcome="failed", seconds=3, reason="mm/memory.c:7:1: error: no",
        log_tail="CC mm/memory.o\n",
    )  # fmt: skip
    build.refresh_from_db()
    assert (build.state, build.reason) == (BuildState.FAILED, "mm/memory.c:7:1: error: no")
    assert build.log_tail == "CC mm/memory.o\n"


def test_builder_without_disk_space_gives_the_build_back() -> None:
    build = dispatched_build()
    agent = builder()
    agent.claim("build-1")
    agent.post("attempts/build-1/build", agent=AGENT, outcome="infrastructure", seconds=3, reason="no space left")
    build.refresh_from_db()
    assert build.state == BuildState.WANTED
    assert "no space left" in build.reason


def test_builder_that_lacks_a_wall_is_taken_out_at_once_and_the_build_waits_for_another() -> None:
    build = dispatched_build()
    Attempt.objects.update(builder=local_builder())
    agent = builder()
    agent.claim("build-1")
    words: dict[str, Any] = {"outcome": "infrastructure", "seconds": 0, "reason": "no limit on memory", "unfit": True}
    agent.post("attempts/build-1/build", agent=AGENT, **words)
    host = Builder.objects.get()
    assert (host.health, host.health_reason) == (Host.Health.QUARANTINED, "it can build nothing: no limit on memory")
    build.refresh_from_db()
    assert build.state == BuildState.WANTED


def test_artifact_with_another_hash_is_refused_and_not_kept(state_dir: Path) -> None:
    assert busy_builder().put(b"something else", "0" * 64) == 400
    assert [p for p in (state_dir / "artifacts").rglob("*") if p.is_file()] == []


def test_empty_artifact_is_stored(state_dir: Path) -> None:
    assert busy_builder().put(b"") == 201
    assert FolderStore().place(hashlib.sha256(b"").hexdigest()).read_bytes() == b""


def test_machine_stores_no_artifacts() -> None:
    assert Agent(ApiToken.Scope.MACHINE, "vm-haswell").put(b"x") == 403


def test_session_runs_to_its_end() -> None:
    session = dispatched_session()
    agent = Agent(ApiToken.Scope.MACHINE, "vm-haswell")
    order = agent.claim("session-1")["session"]
    assert [boot["arm"] for boot in order["boots"]] == ["base", "patched", "patched", "base"]
    assert order["cases"][0] == {
        "benchmark": "mm-basic", "version": "1", "case": "fault-4k", "runs": 6, "warmup": 1, "timeout_seconds": 60,
        "metrics": ["time"],
    }  # fmt: skip
    for boot in order["boots"]:
        path = f"attempts/session-1/boots/{boot['position']}"
        assert agent.post(f"{path}/start", agent=AGENT) == {"continue": True}
        answer = agent.post(
            path, agent=AGENT, outcome="measured", boot_id=str(uuid.uuid4()),
            build_id=order["kernels"][boot["arm"]]["build_id"],
            measurements=[{"benchmark": "mm-basic", "version": "1", "case": "fault-4k", "metric": "time",
                           "values": [3.0, 2.0], "warmup": 1}],
        )  # fmt: skip
        assert answer["stored"] is True
    assert agent.post("attempts/session-1/end", agent=AGENT, outcome="done", reason="") == {}
    session.refresh_from_db()
    assert (session.state, Measurement.objects.count()) == (SessionState.DONE, 4)
    assert Attempt.objects.get().state == AttemptState.DONE


def test_malformed_result_names_the_field() -> None:
    dispatched_session()
    agent = Agent(ApiToken.Scope.MACHINE, "vm-haswell")
    agent.claim("session-1")
    problem = agent.post("attempts/session-1/boots/0", 400, agent=AGENT, outcome="splendid")
    assert problem["code"] == "invalid"
    assert "outcome" in problem["errors"]


@pytest.mark.parametrize(
    "facts", ['{"load": 1e999}', '{"core_types": 5}', '{"core_types": [{}]}', '{"core_types": "all"}', '{"uarch": 7}']
)
def test_facts_that_cannot_be_are_refused_and_do_not_break_the_service(facts: str) -> None:
    dispatched_session()
    agent = Agent(ApiToken.Scope.MACHINE, "vm-haswell")
    agent.claim("session-1")
    body = f'{{"agent": "{AGENT}", "outcome": "no-boot", "facts": {facts}}}'
    headers = {"Authorization": agent.auth}
    url = "/api/v1/agent/attempts/session-1/boots/0"
    assert agent.client.post(url, body, "application/json", headers=headers).status_code == 400


def test_nul_bytes_in_a_console_do_not_break_anything() -> None:
    session = dispatched_session()
    agent = Agent(ApiToken.Scope.MACHINE, "vm-haswell")
    agent.claim("session-1")
    agent.post(
        "attempts/session-1/boots/0", agent=AGENT, outcome="no-boot", console_tail="a\0b", reason="x\0",
        notes=[{"case": "copy", "reason": "\0\ud800"}], facts={"model_name": "\0CPU"},
    )  # fmt: skip
    boot = session.boots.get(position=0)
    assert boot.facts is not None
    assert (boot.notes[0]["reason"], boot.facts.document["model_name"]) == ("?", "CPU")
    assert boot.conditions.console_tail == "ab"


def test_body_for_no_attempt_is_not_read() -> None:
    """Reading it is what costs: whoever has a token may send megabytes of JSON."""
    agent = Agent(ApiToken.Scope.MACHINE, "z3-a")
    response = agent.client.post(
        "/api/v1/agent/attempts/session-99-1/boots/0",
        b"{no json",
        "application/json",
        headers={"Authorization": agent.auth},
    )
    assert (response.status_code, response.json()["code"]) == (404, "not-found")
