"""A real pgbouncer in transaction mode: locks hold, nothing is lost, and nobody starts without knowing of it."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from server.core.database import refuse_unknown_pooler

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.real]
ROOT = Path(__file__).resolve().parents[2]
PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin") or "pgbouncer"
# It refuses to be root; inside a namespace it is somebody else.
_NOT_ROOT = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--"] if os.geteuid() == 0 else []


@pytest.fixture(params=["transaction"])
def pooler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the test's database behind a pooler."""
    folder = tmp_path_factory.mktemp("b")
    given = connection.get_connection_params()
    user = str(given["user"])
    (folder / "users").write_text(f'"{user}" ""\n', encoding="utf-8")
    (folder / "ini").write_text(
        f"[databases]\n* = host={given['host']}\n"
        f"[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {folder}\nauth_type = trust\n"
        f"auth_file = {folder}/users\npool_mode = {request.param}\ndefault_pool_size = 20\nmax_client_conn = 100\n",
        encoding="utf-8",
    )
    with subprocess.Popen([*_NOT_ROOT, PGBOUNCER, "-q", str(folder / "ini")]) as process:
        try:
            until = time.monotonic() + 30
            while not (folder / ".s.PGSQL.6432").exists():
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            address = f"postgres://{user}@/{given['dbname']}?host={folder}&port=6432"
            _wait_until_it_serves(address)
            yield address
        finally:
            process.terminate()


def _wait_until_it_serves(address: str) -> None:
    """Its socket is there before it listens, and it may be refused by a server that is busy."""
    until = time.monotonic() + 120
    while True:
        try:
            with psycopg.connect(address, connect_timeout=20) as session:
                session.execute("SELECT 1")
                return
        except psycopg.OperationalError:
            assert time.monotonic() < until
            time.sleep(0.5)


def run(what: str, address: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "TIDEMARK_DATABASE_URL": address,
        "DJANGO_SETTINGS_MODULE": "server.settings",
        **settings,
    }
    return subprocess.run(
        [sys.executable, "-m", "tests.core.pooled", what],
        cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_lock_has_one_holder_behind_a_pooler_and_is_free_afterwards(pooler: str) -> None:
    result = told(run("contend", pooler, TIDEMARK_DATABASE_POOLED="1"))
    assert result["held"] + result["refused"] == 90
    assert result["held"] > 0
    assert (result["overlapped"], result["free"]) == (0, True)


def test_rows_are_read_and_stored_behind_a_pooler(pooler: str) -> None:
    settings = {"TIDEMARK_DATABASE_POOLED": "1", "TIDEMARK_DATABASE_SECONDS": "20"}
    assert told(run("read-and-store", pooler, **settings)) == {
        "seen": 300,
        "copied": 1,
        # Each question has its one row, and no server keeps a statement; several servers answered.
        "asked": 40,
        "servers": 2,
    }


def test_nobody_starts_behind_a_pooler_that_the_settings_do_not_name(pooler: str) -> None:
    # Who asked before has left no trace by which the next one is let pass.
    # The web and the workers bring a limit for their statements.
    for seconds in ("0", "15") * 2:
        refused = run("start", pooler, TIDEMARK_DATABASE_SECONDS=seconds)
        assert "TIDEMARK_DATABASE_POOLED=1" in refused.stderr, f"{refused.stdout}{refused.stderr}"
    assert told(run("start", pooler, TIDEMARK_DATABASE_POOLED="1")) == {"started": True}


def test_worker_does_not_start_either(pooler: str) -> None:
    environment = {**os.environ, "TIDEMARK_DATABASE_URL": pooler, "TIDEMARK_DATABASE_SECONDS": "240"}
    words = [sys.executable, "-m", "celery", "-A", "workers", "worker", "--pool", "solo", "-Q", "upkeep"]
    done = subprocess.run(words, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "TIDEMARK_DATABASE_POOLED=1" in done.stderr


@pytest.mark.parametrize("pooler", ["session"], indirect=True)
def test_pooler_that_leaves_sessions_alone_needs_no_setting(pooler: str) -> None:
    assert told(run("start", pooler)) == {"started": True}


def test_without_a_pooler_nothing_is_asked_of_the_settings() -> None:
    refuse_unknown_pooler()


def test_lock_that_its_server_ended_is_told(caplog: pytest.LogCaptureFixture) -> None:
    from server.core.database import advisory_lock

    with psycopg.connect(**connection.get_connection_params()) as other, advisory_lock("ended") as free:
        assert free
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            "WHERE locktype = 'advisory' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert "lock_lost" in caplog.text
