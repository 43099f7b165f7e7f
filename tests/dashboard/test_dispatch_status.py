"""The dispatcher on the status page: what is wrong, since when, and what a person can do."""

from datetime import timedelta

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.lab.dispatch.jenkins.models import JenkinsController, JenkinsJob
from tests.builders import build_build
from tests.dashboard.conftest import Reader
from tests.dashboard.test_status import alarms
from tests.lab_scenarios import CONTROLLER, busy_lab

pytestmark = pytest.mark.django_db


@pytest.fixture
def jenkins(settings: Settings) -> None:
    settings.DISPATCHER, settings.JENKINS_URL = "jenkins", CONTROLLER


def controller(**fields: object) -> None:
    now = clock.now()
    usual = {"answered_at": now, "round_at": now, "round_seconds": 0.2, "round_requests": 3}
    JenkinsController.objects.create(url=CONTROLLER, **{**usual, **fields})


def words(text: str) -> str:
    return " ".join(text.split())


def test_local_dispatcher_has_nothing_of_jenkins(reader: Reader) -> None:
    busy_lab()
    text = reader.read("/status/")
    assert "the local dispatcher" in text
    assert "The token of user dispatcher" not in text
    assert "Connection was broken" not in text


def test_dispatcher_for_development_says_that_nothing_goes(reader: Reader, settings: Settings) -> None:
    settings.DISPATCHER = "null"
    build_build(state="wanted")
    assert "the null dispatcher: nothing is handed out" in reader.read("/status/")
    assert "the null dispatcher hands nothing out" in reader.read("/queue/")


@pytest.mark.usefixtures("jenkins")
def test_healthy_controller_raises_no_alarm(reader: Reader) -> None:
    controller(version="2.555.3")
    text = words(reader.read("/status/"))
    assert alarms(text) == ""
    assert "2.555.3" in text
    assert "0.20 s</span>, 3 requests" in text


@pytest.mark.usefixtures("jenkins")
def test_refused_token_and_silent_controller_are_alarms_with_advice(reader: Reader) -> None:
    busy_lab()
    told = words(alarms(reader.read("/status/")))
    for fact in (
        "The token of user dispatcher is refused (401): renew it",
        "The Jenkins controller does not answer.",
        "what runs goes on by itself",
        "312 s behind ours",
    ):
        assert fact in told
    home = words(reader.read("/"))
    assert "Dispatcher: The token of user dispatcher is refused (401)" in home


@pytest.mark.usefixtures("jenkins")
def test_controller_that_was_never_asked_is_an_alarm(reader: Reader) -> None:
    assert "was never asked" in alarms(reader.read("/status/"))


@pytest.mark.usefixtures("jenkins")
def test_rounds_that_stopped_are_an_alarm(reader: Reader) -> None:
    controller(round_at=clock.now() - timedelta(minutes=6))
    assert "No round of the dispatcher was finished lately." in alarms(reader.read("/status/"))


@pytest.mark.usefixtures("jenkins")
def test_status_lists_jobs_nodes_sick_hosts_and_power_cycles(reader: Reader) -> None:
    busy_lab()
    JenkinsJob.objects.create(name="tidemark-build-builder-1", checked_at=clock.now())
    text = words(reader.read("/status/"))
    dispatch = text[text.index('id="dispatch"') : text.index('id="trees"')]
    for fact in (
        "tidemark-session-bench-2",
        "the parameter RUN_ID is gone",
        "Connection was broken",
        "did not come back after it was switched off and on",
        "3 builds lost in a row",
        "it did not come back from a session",
    ):
        assert fact in dispatch
    assert "tidemark-build-builder-1" not in dispatch


@pytest.mark.usefixtures("jenkins")
def test_address_of_the_controller_is_for_staff(reader: Reader, admin_client: object) -> None:
    controller(unreachable_since=clock.now(), trouble=f"{CONTROLLER} does not resolve")
    assert CONTROLLER not in reader.read("/status/")
    text = Reader(admin_client).read("/status/")  # type: ignore[arg-type]  # pytest-django names no type
    assert f"{CONTROLLER} does not resolve" in text


def test_status_names_what_has_waited_longest(reader: Reader) -> None:
    assert "waits longest" in reader.read("/status/")
    old, _young = (build_build(state="wanted") for _ in range(2))
    text = reader.read("/status/")
    assert f'href="/builds/{old.pk}/"' in text
