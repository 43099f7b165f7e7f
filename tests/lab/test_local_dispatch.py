"""The local dispatcher with real processes: a stand-in agent that only takes its lock and waits."""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from server.core import clock
from server.core.access.tokens import find_token
from server.core.models import ApiToken
from server.core.programs.sandbox import bound_memory
from server.lab.dispatch.local import LocalDispatcher, forget_old_logs, stop_agents
from server.lab.port import DispatchError, Observed, Work

pytestmark = pytest.mark.django_db

STAND_IN = """
import fcntl, os, sys, time
key = sys.argv[2]
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
lock = open(os.path.join(options["--state-dir"], key + ".lock"), "a+")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.truncate(0)
lock.write(str(os.getpid()))
lock.flush()
print("secret" if any("SECRET" in name or "DATABASE" in name for name in os.environ) else "clean", flush=True)
time.sleep(60)
"""


@pytest.fixture
def patience() -> Iterator[None]:
    """A test that waits for somebody fails instead of standing still, at its end, too."""

    def end(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 120, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def port(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: None
) -> Iterator[LocalDispatcher]:
    agent = tmp_path / "agent.py"
    agent.write_text(STAND_IN)
    settings.LOCAL_AGENT = str(agent)
    monkeypatch.setenv("TIDEMARK_SECRET_KEY", "x")
    yield LocalDispatcher()
    stop_agents()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited 20 seconds in vain"
        time.sleep(0.02)


def seen(port: LocalDispatcher, work: Work) -> Observed:
    return port.look([work]).works[work.key].observed


WORK = Work("session-1-1", "machine", "vm-haswell")


def test_submitted_work_lives_until_it_is_canceled(port: LocalDispatcher) -> None:
    assert seen(port, WORK) is Observed.ABSENT
    port.submit(WORK)
    until(lambda: seen(port, WORK) is Observed.ALIVE)
    port.cancel(WORK)
    until(lambda: seen(port, WORK) is Observed.ENDED)


def test_same_key_is_not_started_twice(port: LocalDispatcher, state_dir: Path) -> None:
    port.submit(WORK)
    until(lambda: seen(port, WORK) is Observed.ALIVE)
    port.submit(WORK)
    assert (state_dir / "agents" / "vm-haswell" / "session-1-1.log").read_text().split() == ["clean"]


def test_agent_gets_a_token_of_its_machine_only_it_can_read(port: LocalDispatcher, state_dir: Path) -> None:
    port.submit(WORK)
    file = state_dir / "tokens" / "vm-haswell"
    token = find_token(file.read_text())
    assert token is not None
    assert (token.scope, token.subject) == ("machine", "vm-haswell")
    assert file.stat().st_mode & 0o777 == 0o600
    port.submit(Work("session-1-2", "machine", "vm-haswell"))
    assert find_token(file.read_text()) == token
    now = clock.now()
    ApiToken.objects.update(created_at=now - timedelta(days=170), expires_at=now + timedelta(days=10))
    port.submit(Work("session-1-3", "machine", "vm-haswell"))
    new = find_token(file.read_text())
    assert new is not None
    assert new != token


def test_missing_agent_program_is_a_temporary_error(port: LocalDispatcher, settings: Settings) -> None:
    settings.LOCAL_AGENT = "nowhere.pyz"
    with pytest.raises(DispatchError, match="make setup") as raised:
        port.submit(WORK)
    assert not raised.value.permanent


def test_stop_ends_every_agent(port: LocalDispatcher) -> None:
    port.submit(WORK)
    until(lambda: seen(port, WORK) is Observed.ALIVE)
    assert stop_agents() == 1
    until(lambda: seen(port, WORK) is Observed.ENDED)


def test_agent_is_not_bound_by_the_memory_of_the_worker_that_starts_it(port: LocalDispatcher, state_dir: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    bound_memory(4096)
    try:
        port.submit(WORK)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    until(lambda: seen(port, WORK) is Observed.ALIVE)
    lock = state_dir / "agents" / "vm-haswell" / "session-1-1.lock"
    until(lambda: bool(lock.read_text()))
    limits = Path(f"/proc/{lock.read_text()}/limits").read_text()
    (line,) = (line for line in limits.splitlines() if line.startswith("Max data size"))
    assert str(4096 << 20) not in line


@pytest.mark.parametrize("where", ["together", "apart"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_plain_file_in_the_place_of_a_lock_holds_no_round_up(
    port: LocalDispatcher, settings: Settings, state_dir: Path, kind: str, where: str
) -> None:
    settings.LOCAL_AGENTS = where
    agents = state_dir / "agents"
    for lock in (agents / "vm-haswell" / "session-1-1.lock", agents / "serve.lock"):
        lock.parent.mkdir(parents=True, exist_ok=True)
        if kind == "pipe":
            os.mkfifo(lock)
        elif kind == "link":
            lock.symlink_to("/dev/zero")
        else:
            lock.mkdir()
    assert seen(port, WORK) is Observed.ENDED
    assert port.cancel(WORK)
    assert stop_agents() == 0


def test_pipe_in_the_place_of_a_log_starts_no_agent_and_waits_for_nobody(
    port: LocalDispatcher, state_dir: Path
) -> None:
    folder = state_dir / "agents" / "vm-haswell"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "session-1-1.log")
    with pytest.raises(DispatchError, match="cannot start"):
        port.submit(WORK)


def test_folder_in_the_place_of_an_order_is_told_and_breaks_no_round(
    port: LocalDispatcher, settings: Settings, state_dir: Path
) -> None:
    settings.LOCAL_AGENTS = "apart"
    (state_dir / "agents" / "orders" / "session-1-1.start").mkdir(parents=True)
    with pytest.raises(DispatchError, match="cannot stop"):
        port.cancel(WORK)


def test_old_logs_are_forgotten_and_no_link_of_a_folder_is_followed(state_dir: Path, tmp_path: Path) -> None:
    agents, other = state_dir / "agents", tmp_path / "other"
    for folder in (agents / "vm-haswell", agents / "odd", other):
        folder.mkdir(parents=True)
    logs = [folder / name for folder in (agents / "vm-haswell", other) for name in ("new.log", "old.log", "old.lock")]
    for log in logs:
        log.touch()
    (agents / "odd" / "sub.log").mkdir()
    (agents / "vm-link").symlink_to(other)
    for old in (*logs, agents / "odd" / "sub.log"):
        if old.stem != "new":
            os.utime(old, (0, 0))
    assert forget_old_logs() == 2
    assert [log for log in logs if not log.exists()] == logs[1:3]
