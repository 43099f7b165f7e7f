"""What an agent's token opens, for how long, and how its holder gets the next one."""

import hashlib
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.core.management import call_command

from server.builds.models import Artifact, Build, BuildState
from server.builds.storage import put_artifact
from server.core import clock
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.hosts.state import Health
from server.lab.models import AttemptState, Machine, SessionState
from tests.api.test_agent_api import AGENT, Agent
from tests.builders import because, build_attempt, build_build, build_builder, build_machine, build_session

pytestmark = pytest.mark.django_db
HELLO: dict[str, Any] = {"agent": AGENT, "version": "0.1.0", "host": "here"}


def stored(build: Build, kind: str) -> str:
    content = f"{kind} of {build.pk}".encode()
    sha256 = hashlib.sha256(content).hexdigest()
    put_artifact(sha256, [content])
    Artifact.objects.update_or_create(build=build, kind=kind, defaults={"sha256": sha256, "size": len(content)})
    return sha256


def asked(agent: Agent, sha256: str) -> int:
    answer = agent.client.get(f"/api/v1/agent/artifacts/{sha256}", headers={"Authorization": agent.auth})
    if answer.streaming:
        answer.getvalue()
    return answer.status_code


def test_token_of_a_machine_that_was_retired_or_removed_opens_nothing() -> None:
    build_machine("box")
    agent = Agent(ApiToken.Scope.MACHINE, "box")
    agent.post("hello", **HELLO)
    Machine.objects.update(health=Health.RETIRED)
    agent.post("hello", 401, **HELLO)
    assert asked(agent, "0" * 64) == 401
    Machine.objects.update(health=Health.GOOD)
    agent.post("hello", **HELLO)
    Machine.objects.all().delete()
    agent.post("hello", 401, **HELLO)


def test_token_of_a_builder_or_control_host_that_is_gone_opens_nothing() -> None:
    builder = Agent(ApiToken.Scope.BUILDER, "forge", known=False)
    control = Agent(ApiToken.Scope.CONTROL, "old-control")
    builder.post("hello", 401, **HELLO)
    control.post("hello", 401, **HELLO)
    assert builder.put(b"x") == 401
    row = build_builder("forge")
    builder.post("hello", **HELLO)
    type(row).objects.update(health=Health.RETIRED)
    assert builder.put(b"x") == 401


def test_machine_reads_the_kernels_of_its_running_session_and_nothing_else() -> None:
    session = build_session(state=SessionState.RUNNING)
    attempt = build_attempt(session)
    needed = [stored(session.base_build, kind) for kind in ("image", "modules", "perf")]
    needed += [stored(session.patched_build, kind) for kind in ("image", "modules")]
    others = [stored(session.base_build, kind) for kind in ("config", "log", "system-map")]
    others += [stored(session.patched_build, "perf"), stored(build_build(), "image")]
    agent = Agent(ApiToken.Scope.MACHINE, session.machine.name)
    assert [asked(agent, sha256) for sha256 in needed] == [200] * 5
    # As unknown as what is not there: a token is no key to ask what the service has.
    assert [asked(agent, sha256) for sha256 in [*others, "0" * 64]] == [404] * 6
    attempt.advance(AttemptState.DONE, because("over"))
    assert [asked(agent, sha256) for sha256 in needed] == [404] * 5


def test_machine_reads_nothing_of_another_machines_session() -> None:
    session = build_session(machine=build_machine("other"), state=SessionState.RUNNING)
    build_attempt(session)
    build_machine("box")
    assert asked(Agent(ApiToken.Scope.MACHINE, "box"), stored(session.base_build, "image")) == 404


def test_builder_and_control_host_read_no_artifacts() -> None:
    build = build_build(state=BuildState.RUNNING)
    build_attempt(build, builder=build_builder("forge"))
    log = stored(build, "log")
    assert asked(Agent(ApiToken.Scope.BUILDER, "forge"), log) == 404
    assert asked(Agent(ApiToken.Scope.CONTROL, "lab-control"), log) == 404


def test_token_lives_as_long_as_the_site_says_and_is_renewed_in_its_last_third() -> None:
    build_machine("box")
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as time:
        agent = Agent(ApiToken.Scope.MACHINE, "box")
        assert agent.post("hello", **HELLO) == {"renew": False}
        assert agent.post("token", agent=AGENT)["token"] is None
        time.shift(timedelta(days=121))
        assert agent.post("hello", **HELLO) == {"renew": True}
        new = agent.post("token", agent=AGENT)
        assert new["expires_at"].startswith("2026-10-29")
        # Until the new one is used the old one is taken: the answer may have been lost.
        time.shift(timedelta(hours=3))
        assert agent.post("hello", **HELLO) == {"renew": True}
        again = agent.post("token", agent=AGENT)
        old, agent.auth = agent.auth, f"Bearer {new['token']}"
        agent.post("hello", 401, **HELLO)
        agent.auth = f"Bearer {again['token']}"
        assert agent.post("hello", **HELLO) == {"renew": False}
        agent.auth = old
        assert agent.post("hello", **HELLO) == {"renew": False}
        assert agent.post("token", agent=AGENT)["token"] is None
        time.shift(timedelta(minutes=61))
        agent.post("hello", 401, **HELLO)


def test_token_that_nobody_renews_ends() -> None:
    build_machine("box")
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False) as time:
        agent = Agent(ApiToken.Scope.MACHINE, "box")
        time.shift(timedelta(days=179))
        agent.post("hello", **HELLO)
        time.shift(timedelta(days=1))
        agent.post("hello", 401, **HELLO)


def test_revoking_ends_all_tokens_of_a_host_at_once_and_none_can_be_renewed() -> None:
    build_machine("box")
    old = Agent(ApiToken.Scope.MACHINE, "box")
    ApiToken.objects.update(created_at=clock.now() - timedelta(days=170), expires_at=clock.now() + timedelta(days=10))
    new = Agent.__new__(Agent)
    new.client, new.auth = old.client, f"Bearer {old.post('token', agent=AGENT)['token']}"
    local = issue_token(name="local box", scope=ApiToken.Scope.MACHINE, subject="box")
    call_command("issue_token", "box", "--revoke")
    old.post("token", 401, agent=AGENT)
    new.post("hello", 401, **HELLO)
    new.auth = f"Bearer {local}"
    new.post("hello", 401, **HELLO)
