"""`manage.py jenkins_apply` against the test server."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from server.core import clock
from server.lab.dispatch.jenkins import http
from server.lab.dispatch.jenkins.models import JenkinsJob
from server.lab.models import Builder, Machine
from tests.builders import build_machine
from tests.jenkins.server import JenkinsServer
from tests.jenkins.server.nodes import Mark

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[JenkinsServer]:
    # How fast requests may leave is tested by itself.
    monkeypatch.setattr(http, "take_turn", lambda _patience: None)
    settings.LAB_CONTROL = ""
    build_machine("zen3-01", boot_driver="kexec")
    Builder.objects.create(name="b1", arches=["x86_64"], capacity=2)
    with JenkinsServer() as server:
        settings.JENKINS_URL = server.url
        yield server


def apply(server: JenkinsServer, folder: Path, *words: str, user: str = "admin") -> tuple[str, str, bool]:
    """(output, errors, whether it ended well)."""
    token = folder / user
    token.write_text(server.token_of(user))
    out, err = StringIO(), StringIO()
    try:
        call_command("jenkins_apply", *words, user=user, token_file=token, stdout=out, stderr=err)
    except CommandError as error:
        return out.getvalue(), f"{err.getvalue()}{error}", False
    return out.getvalue(), err.getvalue(), True


def test_nodes_and_jobs_are_made_once_and_then_nothing_changes(server: JenkinsServer, tmp_path: Path) -> None:
    said, _, well = apply(server, tmp_path)
    assert well
    assert said.count(": created") == 4
    assert {"zen3-01", "b1"} <= set(server.controller.nodes)
    assert set(server.controller.jobs) == {"tidemark-session-zen3-01", "tidemark-build-b1"}
    assert server.node("b1").executors == 2
    posts = len([each for each in server.requests if each.method == "POST"])
    said, _, well = apply(server, tmp_path)
    assert well
    assert said.count(": as defined") == 4
    assert len([each for each in server.requests if each.method == "POST"]) == posts


def test_check_changes_nothing_and_says_what_would(server: JenkinsServer, tmp_path: Path) -> None:
    said, error, well = apply(server, tmp_path, "--check")
    assert not well
    assert said.count(": not there") == 4
    assert "4 differ" in error
    assert not any(each.method == "POST" for each in server.requests)


def test_an_edited_job_is_shown_as_a_diff_and_put_back(server: JenkinsServer, tmp_path: Path) -> None:
    apply(server, tmp_path)
    server.edit_job("tidemark-build-b1")
    said, _, well = apply(server, tmp_path, "--check")
    assert not well
    assert "job tidemark-build-b1: different" in said
    assert "RUN_ID" in said
    assert apply(server, tmp_path)[2]
    assert apply(server, tmp_path, "--check")[2]


def test_a_node_of_somebody_else_is_left_as_it_is(server: JenkinsServer, tmp_path: Path) -> None:
    server.add_node("b1", "theirs", executors=9)
    said, _, well = apply(server, tmp_path)
    assert well
    assert "node b1: made by somebody else" in said
    assert server.node("b1").executors == 9


def test_a_node_that_is_marked_offline_stays_so(server: JenkinsServer, tmp_path: Path) -> None:
    apply(server, tmp_path)
    for name in ("b1", "zen3-01"):
        server.node(name).mark = Mark(
            "dispatcher", "Tidemark (tidemark-): session-7-1 </slave> & <x>", 1_770_000_000_000
        )
    assert apply(server, tmp_path, "--check")[2]
    Builder.objects.update(capacity=3)
    said, _, well = apply(server, tmp_path)
    assert well
    assert said.count(": updated") == 1
    assert server.node("b1").executors == 3
    for name in ("b1", "zen3-01"):
        mark = server.node(name).mark
        assert mark is not None
        assert mark.message == "Tidemark (tidemark-): session-7-1 </slave> & <x>"


def test_what_left_the_lab_is_listed_and_not_deleted(server: JenkinsServer, tmp_path: Path) -> None:
    apply(server, tmp_path)
    Machine.objects.update(enabled=False)
    said, _, well = apply(server, tmp_path)
    assert well
    assert "job tidemark-session-zen3-01: no longer in the lab" in said
    assert "node zen3-01: no longer in the lab" in said
    assert "tidemark-session-zen3-01" in server.controller.jobs


def test_another_service_on_the_controller_is_left_alone(
    server: JenkinsServer, tmp_path: Path, settings: Settings
) -> None:
    apply(server, tmp_path)
    settings.JENKINS_PREFIX = "tidemark-second-"
    Machine.objects.all().delete()
    Builder.objects.all().delete()
    build_machine("rome-1", boot_driver="kexec")
    said, _, well = apply(server, tmp_path)
    assert well
    assert "no longer in the lab" not in said, "the nodes of the other one are its own"
    settings.JENKINS_PREFIX = "tidemark-"
    Machine.objects.all().delete()
    build_machine("zen3-01", boot_driver="kexec")
    Builder.objects.create(name="b1", arches=["x86_64"], capacity=2)
    said, _, well = apply(server, tmp_path)
    assert well
    assert "no longer in the lab" not in said, "nor are its jobs ours, though our prefix begins them"


def test_one_that_fails_is_named_and_the_others_are_done(server: JenkinsServer, tmp_path: Path) -> None:
    server.answer_with("500", path="POST /createItem", times=1)
    said, error, well = apply(server, tmp_path)
    assert not well
    assert "job tidemark-session-zen3-01: FAILED" in error
    assert said.count(": created") == 3
    assert apply(server, tmp_path)[2]


def test_the_dispatcher_may_not_and_is_told_which_right_it_lacks(server: JenkinsServer, tmp_path: Path) -> None:
    _, error, well = apply(server, tmp_path, user="dispatcher")
    assert not well
    assert "hudson.model" in error
    assert server.controller.jobs == {}


def test_a_controller_that_is_not_there_is_said_in_words(server: JenkinsServer, tmp_path: Path) -> None:
    _, error, well = apply(server, tmp_path, "--url", "http://127.0.0.1:1")
    assert not well
    assert "FAILED" in error
    assert "Traceback" not in error


def test_secrets_are_written_for_their_owner_only(server: JenkinsServer, tmp_path: Path) -> None:
    assert apply(server, tmp_path, "--secrets", str(tmp_path / "secrets"))[2]
    for name in ("zen3-01", "b1"):
        path = tmp_path / "secrets" / name
        assert len(path.read_text()) == 64
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_label_without_a_node_is_told(server: JenkinsServer, tmp_path: Path, settings: Settings) -> None:
    settings.LAB_CONTROL = "lab-control"
    assert "no node has the label lab-control" in apply(server, tmp_path)[1]
    server.add_node("always-on", "lab-control")
    assert "no node" not in apply(server, tmp_path)[1]


def test_job_that_was_put_right_is_triggered_again_at_once(server: JenkinsServer, tmp_path: Path) -> None:
    apply(server, tmp_path)
    name = "tidemark-session-zen3-01"
    for edited in (True, False):
        if edited:
            server.edit_job(name)
        JenkinsJob.objects.update_or_create(name=name, defaults={"problem": "edited", "checked_at": clock.now()})
        assert apply(server, tmp_path)[2]
        job = JenkinsJob.objects.get(name=name)
        assert (job.problem, job.checked_at) == ("", None), "it is looked at before its next trigger"
