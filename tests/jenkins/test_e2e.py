"""`make e2e-jenkins`, played against the test server: the steps that an operator runs against a real controller."""

import secrets
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from scripts.e2e_jenkins import host
from scripts.e2e_jenkins.host import HOUSEKEEPING, RECORDED, Forms, Report, Step, StrayRequestError, own_folder
from server.lab.dispatch.jenkins import controller
from server.lab.scheduling import reader
from tests.jenkins.recordings.files import ABSENT, FOLDER, exchanges, scenarios
from tests.jenkins.server import JenkinsServer

# Of its own: what bears it anywhere on this host was left by this test.
PREFIX = f"e2e-{secrets.token_hex(3)}-"
LEASE_SECONDS = 2
# Long enough for rounds to meet each stage of the start.
_DOWN_SECONDS = 1.5
_NEEDS_A_KERNEL = "a session on the other boots a kernel and measures"
_STEPS = 25


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


@pytest.mark.real(minutes=4)
@pytest.mark.django_db(transaction=True)
def test_the_whole_way_ends_well_and_leaves_nothing_behind(
    live_server: LiveServer, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scripts.e2e_jenkins.whole import Wishes, play_whole

    monkeypatch.setattr(controller, "_BELIEVED_AFTER", timedelta(seconds=1))
    monkeypatch.setattr(controller, "_PROBE_EVERY", timedelta(seconds=1))
    monkeypatch.setattr(reader, "LONGEST_WAIT_SECONDS", 1.0)
    report = Report()
    with JenkinsServer() as server, own_folder(PREFIX, report) as folder, _restarting(server, tmp_path):
        _point_at(server, settings, folder, live_server.url)
        admin = tmp_path / "admin"
        admin.write_text(server.token_of("admin"))
        wishes = Wishes(
            prefix=PREFIX,
            service_url=live_server.url,
            folder=folder,
            admin="admin",
            admin_token_file=admin,
            lease_seconds=LEASE_SECONDS,
            patience=180,
            restart_seconds=3,
            many_files=8000,
            restart_command=f"touch {tmp_path / 'end'}",
            kill_command=f"touch {tmp_path / 'kill'}",
        )
        play_whole(wishes, ServerAgents(server), Forms(), report)
        assert server.controller.jobs == {}
        assert [name for name in server.controller.nodes if name.startswith(PREFIX)] == []
    assert report.ok, report.table()
    assert not folder.exists()
    assert [step.name for step in report.steps if not step.ran] == [_NEEDS_A_KERNEL]
    assert len(report.steps) == _STEPS


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


def test_the_last_line_says_what_was_not_tried() -> None:
    done = Step("a build", ok=True)
    untried = Step("the controller is killed", ran=False, said="JENKINS_KILL_CMD names no command")
    assert Report(steps=[done]).verdict() == "complete: all 1 steps are ok"
    incomplete = Report(steps=[done, untried])
    assert incomplete.ok
    told = "1 of 2 steps not run: the controller is killed (JENKINS_KILL_CMD names no command)"
    assert incomplete.verdict() == f"incomplete: what ran is ok, but {told}"
    failed = Report(steps=[done, untried, Step("a session", said="it stands still")])
    assert not failed.ok
    assert failed.verdict().startswith("FAILED: a session; 1 of 3 steps not run: ")
    assert Report().verdict() == "FAILED: no step ran"


def test_what_a_run_leaves_on_the_host_fails_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_STATE", tmp_path / "lib")
    monkeypatch.setattr(host, "_WRITABLE", (tmp_path,))
    monkeypatch.setattr(host, "_END_SECONDS", 0)
    (tmp_path / "lib" / "tidemark-agent").mkdir(parents=True)
    report = Report(quiet=True)
    with suppress(KeyboardInterrupt), own_folder("e2e-0-", report) as folder:
        (folder / "state").mkdir()
        words = ["sh", "-c", "echo up; sleep 60; true", f"{folder}/agent"]
        sleeper = subprocess.Popen(words, stdout=subprocess.PIPE)
        # Before its first word it may still be on the way from fork to exec, and has no command line to be found by.
        assert sleeper.stdout is not None
        with sleeper.stdout as said:
            assert said.readline() == b"up\n"
        (tmp_path / "lib" / "tidemark-agent" / "session-1-1.lock").touch()
        (tmp_path / "lib" / "jenkins-agent" / "e2e-0-b").mkdir(parents=True)
        raise KeyboardInterrupt
    assert sleeper.wait() == -signal.SIGKILL
    (step,) = report.steps
    assert not step.ok
    assert not folder.exists()
    left = step.said.removeprefix("left behind: ").split("; ")
    places = [str(tmp_path / "lib" / "jenkins-agent"), str(tmp_path / "lib" / "jenkins-agent" / "e2e-0-b")]
    assert left[-2:] == places
    assert left[0].startswith(f"process {sleeper.pid} sh -c")


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
