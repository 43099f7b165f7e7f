"""Builds that fail on their host before any agent has claimed the attempt."""

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from server.builds.models import Build, BuildState
from server.lab import rounds
from server.lab.attempts.ends import fruitless_attempts
from server.lab.dispatch.jenkins.models import JenkinsRun
from server.lab.models import Attempt, AttemptState, Builder, Fault, Host, Machine
from tests.builders import build_build, build_builder, build_machine, build_series, build_session
from tests.jenkins.adapter.looking import MACHINE, posts
from tests.lab.worlds import JenkinsWorld, until

pytestmark = pytest.mark.django_db
REFUSED = """{"key": "K", "reason": "401 authentication-failed: Invalid token.", "event": "claim-refused"}"""
GIVEN_UP = """{"key": "K", "reason": "no answer within 600 s", "event": "server-given-up"}"""


def agent_says(world: JenkinsWorld, line: str, status: int) -> None:
    agent: Path = world.folder / "stand-in"
    agent.write_text(f"#!/bin/sh\necho '{line}' >&2\nexit {status}\n")
    agent.chmod(0o755)


def wanted_build(world: JenkinsWorld) -> Build:
    """The only build there is, for the only builder: nothing shows that another could do it."""
    build_builder("b1")
    build = build_build(state=BuildState.WANTED)
    world.define()
    return build


def lost() -> int:
    return Attempt.objects.filter(state=AttemptState.LOST).count()


def round_until(done: object) -> None:
    assert callable(done)
    until(lambda: rounds.run_round() is not None and bool(done()))


def test_misconfigured_builder_is_taken_out_and_keeps_the_work(world: JenkinsWorld) -> None:
    agent_says(world, REFUSED, 3)
    build = wanted_build(world)
    round_until(lambda: Builder.objects.get().health != Host.Health.GOOD)
    builder = Builder.objects.get()
    assert builder.health == Host.Health.QUARANTINED
    assert "something is wrong with the host" in builder.health_reason
    for _ in range(3):
        rounds.run_round()
    build.refresh_from_db()
    assert (build.state, posts(world)) == (BuildState.WANTED, 3)
    assert fruitless_attempts(build) == 0
    assert set(Attempt.objects.exclude(fault="").values_list("fault", flat=True)) == {Fault.HOST}


def test_words_of_the_console_are_for_staff_and_everybody_is_told_whose_fault_it_was(
    world: JenkinsWorld, client: Client, admin_client: Client
) -> None:
    agent_says(world, REFUSED, 3)
    build = wanted_build(world)
    round_until(lambda: Builder.objects.get().health != Host.Health.GOOD)
    key = Attempt.objects.filter(state=AttemptState.LOST)[0].key
    of_build, of_builder = reverse("build", args=[build.pk]), reverse("builder", args=["b1"])
    api = ("attempts/", f"attempts/{key}/", "builders/", "builders/b1/", f"builds/{build.pk}/")
    for path in (of_build, of_builder, "/status/", "/queue/", *(f"/api/v1/{path}" for path in api)):
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "authentication-failed" not in answer.content.decode(), path
    for path in (of_build, of_builder):
        page = client.get(path).content.decode()
        assert "something is wrong with the host" in page
        assert "its console is for staff" in page
    assert "authentication-failed" in admin_client.get(of_build).content.decode()


def test_words_of_the_shell_are_kept_where_the_program_is_missing(world: JenkinsWorld) -> None:
    wanted_build(world)
    (world.folder / "stand-in").unlink()
    round_until(lost)
    attempt = Attempt.objects.filter(state=AttemptState.LOST)[0]
    assert "not found" in JenkinsRun.objects.get(attempt=attempt).console
    assert "not found" not in attempt.reason


def test_builder_that_cannot_reach_the_service_is_not_blamed_for_it(world: JenkinsWorld) -> None:
    agent_says(world, GIVEN_UP, 75)
    build = wanted_build(world)
    round_until(lambda: lost() == 3)
    assert Builder.objects.get().health == Host.Health.GOOD
    assert set(Attempt.objects.exclude(fault="").values_list("fault", flat=True)) == {Fault.SERVICE}
    assert fruitless_attempts(build) == 0


def test_machine_that_cannot_start_its_agent_is_taken_out_and_keeps_the_work(world: JenkinsWorld) -> None:
    agent_says(world, REFUSED, 3)
    session = build_session(build_series(), build_machine(MACHINE, boot_driver="qemu"))
    world.define()
    round_until(lambda: Machine.objects.get().health == Host.Health.QUARANTINED)
    session.refresh_from_db()
    assert session.state == "planned"
    assert "something is wrong with the host" in Machine.objects.get().health_reason


def test_build_that_a_person_aborted_before_it_was_claimed_blames_nobody(world: JenkinsWorld) -> None:
    wanted_build(world)
    for number in range(1, 4):
        round_until(lambda number=number: _running(world, number))
        key = Attempt.objects.get(number=number).key
        world.server.controller.stop(world.server.builds_of(key)[0], "somebody")
        round_until(lambda number=number: lost() == number)
    assert Builder.objects.get().health == Host.Health.GOOD
    assert set(Attempt.objects.filter(state="lost").values_list("fault", flat=True)) == {""}


def _running(world: JenkinsWorld, number: int) -> bool:
    attempt = Attempt.objects.filter(number=number).first()
    return attempt is not None and any(build.building for build in world.server.builds_of(attempt.key))
