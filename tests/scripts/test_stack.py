"""A stack of servers of its own, in a directory of its own, as `make test` and `make demo` start them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from scripts.stack import Program, Stack, StackError, stack_down, stack_remove, stack_status, stack_up
from scripts.stack.places import Places, read_env_file
from scripts.stack.servers import choose_postgres
from scripts.stack.supervisor import is_alive, marked_processes

ROOT = Path(__file__).resolve().parent.parent.parent
# What an operator's shell would hold, without the settings that these tests themselves run on.
ENVIRON = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMARK_")}
SLEEPER = Program("sleeper", (sys.executable, "-c", "import time; time.sleep(600)"), env={"NOTE": "100% of 'it'"})


def _up(local: Path, *extra: Program) -> Stack:
    return stack_up(ROOT, local=local, services=False, durable=False, environ=ENVIRON, extra_programs=extra)


def _pids(local: Path) -> dict[str, int]:
    _, lines = stack_status(ROOT, local=local)
    return {line.split()[0]: int(line.partition("pid ")[2].partition(",")[0]) for line in lines if "pid " in line}


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "stack"
    stack_down(ROOT, local=tmp_path / "stack")
    assert marked_processes(tmp_path / "stack") == []
    stack_remove(ROOT, local=tmp_path / "stack")


def _answers(local: Path) -> bool:
    address = read_env_file(local / "env")
    host = address["TIDEMARK_DATABASE_URL"].partition("host=")[2]
    client = redis.Redis(unix_socket_path=address["TIDEMARK_REDIS_URL"].removeprefix("redis+socket://"))
    try:
        with psycopg.connect(host=host, user="tidemark", dbname="tidemark", connect_timeout=2):
            return bool(client.ping())
    except (psycopg.OperationalError, redis.RedisError):
        return False
    finally:
        client.close()


def test_second_up_finds_the_first_and_changes_nothing(local: Path) -> None:
    first = _up(local)
    pids = _pids(local)
    second = _up(local)
    assert (first.fresh, second.fresh) == (True, False)
    assert second.pid == first.pid
    assert _pids(local) == pids
    assert _answers(local)


def test_whatever_is_killed_is_started_again(local: Path) -> None:
    _up(local, SLEEPER)
    before = _pids(local)
    assert set(before) == {"postgres", "redis", "sleeper"}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    _wait_for(lambda: set(_pids(local)) == set(before) and not set(_pids(local).values()) & set(before.values()))
    _wait_for(lambda: _answers(local))


def test_program_gets_its_environment_and_its_name(local: Path) -> None:
    _up(local, SLEEPER)
    environment = Path(f"/proc/{_pids(local)['sleeper']}/environ").read_bytes().split(b"\0")
    assert b"NOTE=100% of 'it'" in environment
    assert b"TIDEMARK_PROCESS=sleeper" in environment
    assert f"TIDEMARK_ENV_FILE={local / 'env'}".encode() in environment


def test_up_after_a_crash_of_everything_goes_on_with_the_same_data(local: Path) -> None:
    stack = _up(local)
    host = read_env_file(local / "env")["TIDEMARK_DATABASE_URL"].partition("host=")[2]
    with psycopg.connect(host=host, user="tidemark", dbname="tidemark") as connection:
        connection.execute("CREATE TABLE kept (id int)")
    pids = [stack.pid, *_pids(local).values()]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    _wait_for(lambda: not any(is_alive(pid) for pid in pids))
    # After a reboot the number in the lock file may be that of any process; this one's stands for it.
    lock = choose_postgres(Places(ROOT, local)).data / "postmaster.pid"
    lock.write_text(lock.read_text().replace(lock.read_text().split("\n", 1)[0], str(os.getpid()), 1))
    assert stack_status(ROOT, local=local) == (None, [])
    assert _up(local).fresh
    with psycopg.connect(host=host, user="tidemark", dbname="tidemark") as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)


def test_down_ends_orphans_of_its_own_and_nothing_else(local: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        stack = _up(local, SLEEPER)
        os.kill(stack.pid, signal.SIGKILL)
        _wait_for(lambda: not is_alive(stack.pid))
        assert len(marked_processes(local)) >= 3
        assert stack_down(ROOT, local=local)
        assert marked_processes(local) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_program_that_cannot_start_is_named_with_its_words(local: Path) -> None:
    broken = Program("broken", (sys.executable, "-c", "raise SystemExit('no such luck')"))
    with pytest.raises(StackError, match=r"(?s)broken does not start.*no such luck"):
        _up(local, broken)
    assert marked_processes(local) == []


def test_operator_s_own_servers_are_used_and_none_is_started(local: Path) -> None:
    own = {**ENVIRON, "TIDEMARK_DATABASE_URL": "postgres://db.example/x", "TIDEMARK_REDIS_URL": "redis://db.example"}
    stack = stack_up(ROOT, local=local, services=False, environ=own, extra_programs=[SLEEPER])
    assert stack.programs == ("sleeper",)
    assert read_env_file(local / "env")["TIDEMARK_DATABASE_URL"] == "postgres://db.example/x"


def test_operator_s_own_servers_may_be_named_by_files(local: Path) -> None:
    files = {"TIDEMARK_DATABASE_URL_FILE": "/run/secrets/database", "TIDEMARK_REDIS_URL_FILE": "/run/secrets/redis"}
    stack = stack_up(ROOT, local=local, services=False, environ={**ENVIRON, **files}, extra_programs=[SLEEPER])
    assert stack.programs == ("sleeper",)
    written = read_env_file(local / "env")
    assert {name: written.get(name) for name in files} == files, "manage.py elsewhere needs them as well"
    assert not {"TIDEMARK_DATABASE_URL", "TIDEMARK_REDIS_URL"} & set(written)
