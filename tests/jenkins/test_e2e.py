"""`make e2e-jenkins`, played against the test server: the steps that an operator runs against a real controller."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from scripts.e2e_jenkins.forms import HOUSEKEEPING, RECORDED, Forms, StrayRequestError
from server.lab.dispatch.jenkins import alarms
from tests.jenkins.recordings.files import ABSENT, FOLDER, exchanges, scenarios
from tests.jenkins.server import JenkinsServer

PREFIX = "e2e-test-"
LEASE_SECONDS = 2
# Long enough for rounds to meet each stage of the start.
_DOWN_SECONDS = 1.5
_NEEDS_A_KERNEL = "a session on the other boots a kernel and measures"
# One of them not run: there is no kernel that boots.
_STEPS = 19


class ServerAgents:
    """The server plays its nodes' agents itself."""

    def __init__(self, server: JenkinsServer) -> None:
        self.server = server
        self.started: set[str] = set()

    def start(self, node: str, secret: str) -> None:
        assert secret
        self.server.connect(node)
        self.started.add(node)

    def kill(self, node: str) -> None:
        self.server.kill_agent(node)

    def stop_all(self) -> list[str]:
        return sorted(self.started)


@pytest.mark.real
@pytest.mark.django_db(transaction=True)
def test_the_whole_way_ends_well_and_leaves_nothing_behind(
    live_server: LiveServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.e2e_jenkins.report import Report
    from scripts.e2e_jenkins.whole import Wishes, play_whole

    monkeypatch.setattr(alarms, "_BELIEVED_AFTER", timedelta(seconds=1))
    monkeypatch.setattr(alarms, "_PROBE_EVERY", timedelta(seconds=1))
    with JenkinsServer() as server, _restarting(server, tmp_path):
        _point_at(server, settings, tmp_path, live_server.url)
        admin = tmp_path / "admin"
        admin.write_text(server.token_of("admin"))
        wishes = Wishes(
            prefix=PREFIX,
            service_url=live_server.url,
            folder=tmp_path,
            admin="admin",
            admin_token_file=admin,
            lease_seconds=LEASE_SECONDS,
            patience=60,
            restart_seconds=3,
            restart_command=f"touch {tmp_path / 'end'}",
            kill_command=f"touch {tmp_path / 'kill'}",
        )
        forms, report = Forms(), Report()
        play_whole(wishes, ServerAgents(server), forms, report)
        assert report.ok, report.table()
        assert [step.name for step in report.steps if not step.ran] == [_NEEDS_A_KERNEL]
        assert len(report.steps) == _STEPS
        assert server.controller.jobs == {}
        assert [name for name in server.controller.nodes if name.startswith(PREFIX)] == []


def _point_at(server: JenkinsServer, settings: Settings, folder: Path, url: str) -> None:
    token = folder / "dispatcher"
    token.write_text(server.token)
    settings.DISPATCHER = "jenkins"
    settings.AGENT_URL = settings.SITE_URL = url
    settings.MIRROR_URL = str(folder / "tree")
    settings.LEASE_SECONDS = LEASE_SECONDS
    settings.JENKINS_URL = server.url
    settings.JENKINS_USER = server.user
    settings.JENKINS_TOKEN_FILE = str(token)
    settings.JENKINS_PREFIX = PREFIX
    settings.JENKINS_AGENT = str(folder / "agent")
    settings.JENKINS_FOLDER = str(folder / "nodes")
    settings.LAB_CONTROL = ""
    settings.BUILD_CGROUP = "optional"


@contextmanager
def _restarting(server: JenkinsServer, folder: Path) -> Iterator[None]:
    """Restarts the server when one of the files appears: the commands of the run are processes of their own."""
    over = threading.Event()

    def wait() -> None:
        while not over.wait(0.05):
            for name in ("end", "kill"):
                if (folder / name).exists():
                    (folder / name).unlink()
                    server.restart(kill=name == "kill", down_seconds=_DOWN_SECONDS)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/job/x/doDelete?force=1"),
        ("GET", "/script"),
        ("POST", "/safeRestart"),
        ("GET", "/api/json?depth=2"),
        ("POST", "/job/a/b/buildWithParameters"),
    ],
)
def test_no_other_form_leaves(method: str, target: str) -> None:
    with pytest.raises(StrayRequestError):
        Forms().check(method, target)


@pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)
def test_every_form_was_recorded_but_three_of_housekeeping() -> None:
    forms = Forms()
    for exchange in (each for scenario in scenarios() for each in exchanges(scenario)):
        try:
            forms.check(exchange.request["method"], f"{exchange.request['path']}?{exchange.request['query']}")
        except StrayRequestError:
            continue
    assert len(forms.counts) == len(RECORDED)
    assert len(HOUSEKEEPING) == 3
