"""What a lab of hosts that ask costs the service, and how soon they have their work.

python -m bench.scratch_database bench.dispatch.pulling [HOSTS] [IDLE_SECONDS] [WITHIN]: gunicorn as the service starts
it, real PostgreSQL and Redis, HOSTS asking in a process of their own. They come WITHIN so many seconds: 100 a second,
as a lab comes back, or all at once (0), as from a power cut. CPU is that of processes, not of the clock on the wall.
"""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from unittest.mock import patch
from urllib.parse import quote

from django.conf import settings
from django.db import connection

from bench.kit import ROOT
from bench.table import table
from server.core.access.tokens import issue_token
from server.core.models import ApiToken
from server.core.reasons import Because
from server.lab.attempts.ends import end_session
from server.lab.bell import Bell
from server.lab.models import Asker, Attempt, Machine, Session, SessionState
from server.lab.rounds import run_round
from tests.builders import build_machine, build_series, build_session

# Of the hosts: those that get their work one by one, those for which no bell is rung, those that get it all at once.
_ONE_BY_ONE, _WITHOUT_BELL, _AT_ONCE = 0.1, 0.02, 0.25
_PATIENCE = 300.0
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Seen:
    """What the hosts said: when each key was with its host, and how its claims were answered."""

    at: dict[str, float] = field(default_factory=dict)
    claims: Counter[tuple[str, int]] = field(default_factory=Counter)

    def read(self, lines: IO[str]) -> None:
        for line in lines:
            told = json.loads(line)
            self.at.setdefault(told["key"], told["at"])
            self.claims[told["key"], told["claim"]] += 1


def main(hosts: str = "2000", idle: str = "60", within: str = "") -> None:
    spread = float(within or int(hosts) / 100)
    settings.DISPATCHER = "pull"
    names = [f"desk-{number}" for number in range(int(hosts))]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hosts"
        file.write_text("".join(f"{name} {_token(name)}\n" for name in names), encoding="ascii")
        with _web(Path(folder)) as (port, web), _asking(port, file, spread) as seen:
            rows = [*_come(web, len(names), spread), *_idle(web, float(idle)), *_work(names, seen)]
            rows += [["web processes, memory at the end", f"{sum(map(_resident, _children(web))) / 1024:.0f} MB"]]
        problems = _accounts(seen)
    print(table([f"{hosts} hosts that ask", ""], [*rows, *problems]))
    sys.exit(0 if all(row[1] == "0" for row in problems) else 1)


def _token(name: str) -> str:
    build_machine(name, boot_driver="kexec")
    return issue_token(name=name, scope=ApiToken.Scope.MACHINE, subject=name)


@contextmanager
def _web(folder: Path) -> Iterator[tuple[int, int]]:
    """The port, and the process above those that answer."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    given = connection.get_connection_params()
    user, host = quote(str(given.get("user", "")), safe=""), quote(str(given.get("host", "")), safe="/")
    own = {
        "TIDEMARK_DATABASE_URL": f"postgres://{user}@/{given['dbname']}?host={host}",
        "TIDEMARK_REDIS_URL": str(settings.CELERY_BROKER_URL),
        "TIDEMARK_DISPATCHER": "pull",
        "TIDEMARK_STATE_DIR": str(folder),
        "TIDEMARK_WEB_CONNECTIONS": "4000",
        "TIDEMARK_LOG_LEVEL": "WARNING",
    }
    words = [sys.executable, "-m", "gunicorn", "--config", "python:server.web.process", "--bind", f"127.0.0.1:{port}"]
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, **own}) as process:
        try:
            _until(lambda: _answers(port))
            yield port, process.pid
        finally:
            process.terminate()


@contextmanager
def _asking(port: int, file: Path, spread: float) -> Iterator[Seen]:
    seen = Seen()
    words = [sys.executable, "-m", "bench.dispatch.asking", str(port), str(file), str(spread)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        reading = threading.Thread(target=seen.read, args=(process.stdout,), daemon=True)
        reading.start()
        try:
            yield seen
        finally:
            process.kill()
            reading.join()


def _come(web: int, hosts: int, spread: float) -> list[list[str]]:
    """How long until all have been heard, and what that costs."""
    before, began = sum(map(_cpu, _children(web))), time.monotonic()
    _until(lambda: Asker.objects.count() == hosts)
    took, cpu = time.monotonic() - began, sum(map(_cpu, _children(web))) - before
    return [
        ["load of this machine (1, 5, 15 minutes)", ", ".join(f"{load:.1f}" for load in os.getloadavg())],
        [f"all come within {spread:.0f} s: the last was heard after", f"{took:.1f} s"],
        ["the same: CPU of the web processes, each host", f"{cpu / hosts * 1000:.1f} ms"],
    ]


def _idle(web: int, seconds: float) -> list[list[str]]:
    """What it costs that all of them wait: after all have asked once, for one round of their requests."""
    processes, postmaster = _children(web), _postmaster()
    before, database = sum(map(_cpu, processes)), _cpu(postmaster, waited=True)
    backends: list[int] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        backends.append(_backends())
        time.sleep(0.25)
    share = (sum(map(_cpu, processes)) - before) / seconds
    return [
        ["idle: CPU of the web processes", f"{share * 100:.1f} % of one"],
        ["idle: CPU of PostgreSQL", f"{(_cpu(postmaster, waited=True) - database) / seconds * 100:.1f} % of one"],
        ["idle: connections to PostgreSQL, mean and most", f"{sum(backends) / len(backends):.2f}, {max(backends)}"],
        ["idle: web processes, memory", f"{sum(map(_resident, processes)) / 1024:.0f} MB in {len(processes)}"],
    ]


def _work(names: list[str], seen: Seen) -> list[list[str]]:
    few, fewer, many = (int(share * len(names)) for share in (_ONE_BY_ONE, _WITHOUT_BELL, _AT_ONCE))
    chosen = random.Random(7).sample(names, few + fewer + many)  # noqa: S311 (which desk it is)
    series = build_series()
    one_by_one = [_one(series, name, seen) for name in chosen[:few]]
    with patch.object(Bell, "ring", return_value=False):
        silent = [_one(series, name, seen) for name in chosen[few:-many]]
    sessions = [build_session(series, Machine.objects.get(name=name)) for name in chosen[-many:]]
    began = time.monotonic()
    while run_round():
        pass
    placed = time.monotonic() - began
    keys = list(Attempt.objects.filter(session__in=sessions).values_list("key", flat=True))
    _until(lambda: all(key in seen.at for key in keys))
    at_once = [seen.at[key] - began for key in keys]
    _end([session.pk for session in sessions])
    return [
        [f"wanted to there, {few} one by one", _spread(one_by_one)],
        [f"the same of {fewer}, no ring is heard", _spread(silent)],
        [f"the same of {len(keys)} at once (rounds took {placed:.1f} s)", _spread(at_once)],
    ]


def _one(series: Any, name: str, seen: Seen) -> float:
    session = build_session(series, Machine.objects.get(name=name))
    began = time.monotonic()
    run_round()
    key = session.attempts.get().key
    _until(lambda: key in seen.at, every=0.005)
    took = seen.at[key] - began
    _end([session.pk])
    return took


def _end(sessions: Sequence[int]) -> None:
    """Their hosts hear of it by their next heartbeat."""
    rows = Session.objects.filter(pk__in=sessions)
    _until(lambda: not rows.exclude(state=SessionState.RUNNING).exists())
    for session in rows:
        end_session(session, SessionState.CANCELED, Because.BY_PERSON("measured"))


def _accounts(seen: Seen) -> list[list[str]]:
    """Each attempt was claimed once, and there is one for each session."""
    taken = Counter(key for key, status in seen.claims.elements() if status == 200)  # noqa: PLR2004
    attempts = Attempt.objects.values_list("key", flat=True)
    again = Session.objects.count() - Attempt.objects.values("session").distinct().count()
    return [
        ["claims lost", str(sum(key not in taken for key in attempts) + again)],
        ["claims doubled", str(sum(count > 1 for count in taken.values()))],
        ["attempts lost", str(Attempt.objects.filter(state=Attempt.State.LOST).count())],
    ]


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    p50, p95 = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.95)]
    return f"p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms, longest {ordered[-1] * 1000:.0f} ms"


def _until(condition: Any, every: float = 0.1) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_PATIENCE} s in vain")
        time.sleep(every)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return b" 200 " in client.recv(4096)
    except OSError:
        return False


def _backends() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


def _postmaster() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(_stat(cursor.fetchone()[0])[1])


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def _cpu(pid: int, *, waited: bool = False) -> float:
    """Seconds; with those of children that ended, where they are `waited` for."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15] if waited else fields[11:13])) / _TICK


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def _resident(pid: int) -> int:
    """KiB, memory that processes share divided among them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
