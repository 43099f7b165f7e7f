"""A worker that cannot shut strangers' patches and builds off does not begin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.core.access.tries import OutOfBoundsError
from server.core.errors import DomainError
from server.core.models import Begun
from server.lab.dispatch.local import require_walls
from tests.web.conftest import database_url
from workers import detection

ROOT = Path(__file__).resolve().parents[2]


def worker(tmp_path: Path, queue: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """A worker on a host where bwrap does not work, and which finds no Redis; a database it would wait for."""
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    (tmp_path / "agent.py").write_text(
        "raise SystemExit('tidemark-agent: no walls: ' + ' '.join(__import__('sys').argv[1:]))"
    )
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TIDEMARK_ENV_FILE": os.devnull,
        "TIDEMARK_SECRET_KEY": "x",
        "TIDEMARK_DATABASE_URL": database_url(),
        "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0",
        "TIDEMARK_LOCAL_AGENT": str(tmp_path / "agent.py"),
        **settings,
    }
    words = [sys.executable, "-m", "celery", "-A", "workers", "worker", "--pool", "solo", "-Q", queue]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_worker_that_cannot_shut_git_off_does_not_start(tmp_path: Path) -> None:
    done = worker(tmp_path, "sources,reports")
    assert done.returncode == 1
    assert "this worker does not start: patches wait, for git cannot be shut off from this host" in done.stderr
    assert "No permissions to create new namespace" in done.stderr


def test_worker_whose_agents_could_not_shut_builds_off_does_not_start(tmp_path: Path) -> None:
    done = worker(tmp_path, "lab", TIDEMARK_BUILD_CGROUP="optional")
    assert done.returncode == 1
    assert "this worker does not start: no walls: check --sandbox bwrap --cgroup optional" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("DISPATCHER", "jenkins"), ("LOCAL_AGENTS", "apart"), ("LOCAL_AGENT", "nowhere")]
)
def test_worker_that_starts_no_agents_here_asks_nothing_of_this_host(
    settings: Settings, tmp_path: Path, name: str, value: str
) -> None:
    (tmp_path / "agent.py").write_text("raise SystemExit(3)")
    settings.DISPATCHER, settings.LOCAL_AGENTS, settings.LOCAL_AGENT = "local", "here", str(tmp_path / "agent.py")
    with pytest.raises(DomainError):
        require_walls()
    setattr(settings, name, value)
    require_walls()


def test_operator_who_does_without_all_walls_is_not_asked_for_any(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("raise SystemExit(3)")
    settings.LOCAL_AGENT, settings.BUILD_SANDBOX = str(tmp_path / "agent.py"), "none"
    with pytest.raises(DomainError):
        require_walls()
    settings.BUILD_CGROUP = "optional"
    require_walls()


def test_process_of_a_worker_gets_so_much_memory_and_no_more() -> None:
    program = "import workers\nfrom celery.signals import worker_process_init\nworker_process_init.send(sender=None)\n"
    program += "print(len(bytearray(64 << 20)), flush=True)\nbytearray(600 << 20)"
    environment = {"PATH": os.environ["PATH"], "TIDEMARK_ENV_FILE": os.devnull, "TIDEMARK_SECRET_KEY": "x"}
    environment |= {"TIDEMARK_DATABASE_URL": "postgres:///none", "TIDEMARK_REDIS_URL": "redis://127.0.0.1:1/0"}
    environment |= {"TIDEMARK_WORKER_MEMORY_MB": "512"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == str(64 << 20)
    assert done.stderr.strip().endswith("MemoryError")


@pytest.mark.django_db
def test_no_task_ends_with_the_error_for_which_celery_ends_the_whole_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def die(**_kwargs: int) -> None:
        raise MemoryError

    monkeypatch.setattr(detection, "answer_trial", die)
    monkeypatch.setattr(detection, "trials_to_look_at", die)
    with pytest.raises(OutOfBoundsError, match=r"detection\.answer 7: MemoryError"):
        detection.answer(7)
    with pytest.raises(OutOfBoundsError, match=r"detection\.sweep: MemoryError"):
        detection.sweep()
    assert list(Begun.objects.values_list("key", flat=True)) == ["detection.answer 7"]
