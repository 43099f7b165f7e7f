"""The real agent program against the live service: both sides of docs/agent-protocol.md at once."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings
from pytest_django.live_server_helper import LiveServer

from scripts.build_agent import build_agent
from server.builds.models import Artifact, Build, BuildState
from server.builds.storage import FolderStore, put_artifact
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.lab.hosts.trouble import want_power_cycle
from server.lab.models import Attempt, AttemptState, BootState, PowerCycle, PowerCycleState, Session, SessionState
from server.lab.work import local_builder
from server.results.benchmarks import load_benchmark
from tests.builders import (
    because,
    build_attempt,
    build_build,
    build_machine,
    build_revision,
    build_series,
    build_session,
    build_tree,
)

pytestmark = [pytest.mark.real, pytest.mark.django_db(transaction=True)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def agent_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agent") / "tidemark-agent.pyz"
    build_agent(path)
    return path


def run_agent(program: Path, key: str, server: str, token: str, folder: Path) -> subprocess.CompletedProcess[str]:
    token_file = folder / "token"
    token_file.write_text(token)
    token_file.chmod(0o600)
    command = [sys.executable, str(program), "run", key, "--server", server]
    command += ["--token-file", str(token_file), "--state-dir", str(folder / "state")]
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def queue(key: str, *, build: Build | None = None, session: Session | None = None) -> Attempt:
    return Attempt.objects.create(
        key=key, number=1, build=build, session=session, adapter="local", slots=1, state=AttemptState.QUEUED
    )


def test_build_that_fails_comes_back_with_reason_and_log(
    live_server: LiveServer, settings: Settings, agent_program: Path, tmp_path: Path
) -> None:
    source = tmp_path / "linux"
    source.mkdir()
    git(source, "init", "-q")
    (source / "Makefile").write_text("allnoconfig:\n\t@echo 'mm/memory.c:7:1: error: no such thing'; exit 2\n")
    git(source, "add", ".")
    git(source, "commit", "-qm", "mm: Break everything")
    settings.MIRROR_URL = str(source)
    revision = build_revision(build_tree(), sha=git(source, "rev-parse", "HEAD"))
    attempt = queue("build-1-1", build=build_build(revision, state=BuildState.DISPATCHED))
    token = issue_token(name="builder", scope=ApiToken.Scope.BUILDER, subject=local_builder().name)

    done = run_agent(agent_program, attempt.key, live_server.url, token, tmp_path)

    build = Build.objects.get()
    assert build.state == BuildState.FAILED, done.stderr
    assert "mm/memory.c:7:1: error: no such thing" in build.reason
    log = build.artifacts.get(kind=Artifact.Kind.LOG)
    assert b"no such thing" in FolderStore().place(log.sha256).read_bytes()
    attempt.refresh_from_db()
    assert attempt.state == AttemptState.DONE
    assert token not in done.stderr + done.stdout


def test_kernel_that_does_not_boot_ends_the_session_with_evidence(
    live_server: LiveServer, agent_program: Path, tmp_path: Path
) -> None:
    load_benchmark(ROOT / "agents" / "benchmarks" / "mm-basic")
    image = b"this is no kernel\n" * 100
    sha256 = hashlib.sha256(image).hexdigest()
    put_artifact(sha256, [image])
    machine = build_machine(virtual=True, driver_options={"cpu": "Haswell", "memory_mb": 256})
    session = build_session(build_series(), machine, state=SessionState.DISPATCHED)
    Artifact.objects.filter(kind=Artifact.Kind.IMAGE).update(sha256=sha256, size=len(image))
    attempt = queue("session-1-1", session=session)
    token = issue_token(name="machine", scope=ApiToken.Scope.MACHINE, subject=machine.name)

    done = run_agent(agent_program, attempt.key, live_server.url, token, tmp_path)

    session.refresh_from_db()
    assert session.state in {SessionState.FAILED, SessionState.PLANNED}, done.stderr
    assert session.boots.filter(state=BootState.MEASURED).count() == 0
    assert session.reason
    attempt.refresh_from_db()
    assert attempt.state == AttemptState.DONE


def test_agent_that_comes_too_late_does_nothing(live_server: LiveServer, agent_program: Path, tmp_path: Path) -> None:
    attempt = queue("build-1-1", build=build_build(state=BuildState.DISPATCHED))
    Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.LOST)
    token = issue_token(name="builder", scope=ApiToken.Scope.BUILDER, subject=local_builder().name)
    done = run_agent(agent_program, attempt.key, live_server.url, token, tmp_path)
    assert done.returncode == 0, done.stderr
    assert Build.objects.get().state == BuildState.DISPATCHED


def test_stopped_power_cycle_is_begun_again_and_nothing_is_held_against_its_machine(
    live_server: LiveServer, settings: Settings, agent_program: Path, tmp_path: Path
) -> None:
    """As Jenkins stops it: the switch's program is ended before its agent."""
    settings.DISPATCHER, settings.LAB_CONTROL = "jenkins", "lab-control"
    machine = build_machine(boot_driver="kexec")
    cycle = want_power_cycle(machine, because("hangs"))
    PowerCycle.objects.update(state=PowerCycleState.DISPATCHED)
    attempt = build_attempt(cycle, state=AttemptState.QUEUED)
    token = issue_token(name="control", scope=ApiToken.Scope.CONTROL, subject="lab-control")
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    switch = f"echo $$ > {tmp_path}/switch.new; mv {tmp_path}/switch.new {tmp_path}/switch; exec sleep 600"
    (tmp_path / "agent.toml").write_text(
        f'server = "{live_server.url}"\ntoken_file = "{tmp_path}/token"\nstate_dir = "{tmp_path}/state"\n'
        f'[power]\ncommand = ["/bin/sh", "-c", "{switch}"]\n'
    )
    command = [sys.executable, str(agent_program), "run", attempt.key, "--config", str(tmp_path / "agent.toml")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as agent:
        end = time.monotonic() + 60
        while not (tmp_path / "switch").exists():
            if agent.poll() is not None or time.monotonic() > end:
                agent.kill()
                pytest.fail(agent.communicate()[1])
            time.sleep(0.02)
        os.kill(int((tmp_path / "switch").read_text()), signal.SIGTERM)
        time.sleep(0.5)
        agent.send_signal(signal.SIGTERM)
        said = agent.communicate(timeout=60)[1]
    for row in (attempt, cycle, machine):
        row.refresh_from_db()
    assert (attempt.state, cycle.state) == (AttemptState.CANCELED, PowerCycleState.WANTED), said
    assert (machine.health, cycle.attempts.count()) == ("good", 1)
    assert "stopped by a controller or an operator" in attempt.reason
