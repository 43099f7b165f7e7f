"""How long people, agents and supervisors wait while hundreds of clients take their time, beside nobody else there.

python -m bench.dispatch.slow_clients [--clients N] [--seconds N] [--threaded]

The clients trickle: nothing, heads, bodies without a token, with a wrong one and with a right one, forms; and readers
that do not read. `--threaded` asks the same of gunicorn's threads, which read for themselves.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scratch_database import servers
from bench.table import Bar, table

ROOT = Path(__file__).resolve().parents[2]
TIMES = Bar("times as long", "times", "", high=20)
LONGEST = Bar("seconds at most", "longest", "", high=2)
_PROBES = ("/healthz", "/", "/api/v1/agent/hello")
_PATIENCE = 15.0
_PAUSE = 0.1
_TRICKLE = 1.0
_THREADED = ["django.core.wsgi:get_wsgi_application()", "--worker-class", "gthread", "--workers", "2", "--threads", "4"]
# As the service starts it.
WEB = ("--config", "python:server.web.process")


@dataclass(frozen=True)
class Kind:
    """What clients of one kind begin with, and what they go on with, a byte a second."""

    name: str
    head: str
    trickle: bytes = b"x"


def kinds(token: str) -> list[Kind]:
    host = "Host: 127.0.0.1\r\n"
    hello, body = f"POST /api/v1/agent/hello HTTP/1.1\r\n{host}", "Content-Length: 30000000\r\n\r\n{"
    form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100000\r\n\r\nusername="
    wrong = f"tm_{'0' * 12}_{'x' * 40}"
    return [
        Kind("nobody else", ""),
        Kind("connect, say nothing", "", b""),
        Kind("head", f"GET / HTTP/1.1\r\n{host}X-Slow: "),
        Kind("body, no token", f"{hello}{body}"),
        Kind("body, wrong token", f"{hello}Authorization: Bearer {wrong}\r\n{body}"),
        Kind("body, right token", f"{hello}Authorization: Bearer {token}\r\n{body}"),
        Kind("form", f"POST /admin/login/ HTTP/1.1\r\n{host}{form}"),
        Kind("ask, do not read", f"GET /api/v1/queue/ HTTP/1.1\r\n{host}\r\n" * 20, b""),
    ]


async def trickle(port: int, kind: Kind) -> None:
    """One client that comes again whenever it is sent away."""
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(kind.head.encode())
                while not writer.is_closing():
                    writer.write(kind.trickle)
                    await writer.drain()
                    await asyncio.sleep(_TRICKLE)
            finally:
                writer.transport.abort()
        await asyncio.sleep(_TRICKLE)


async def crowd(port: int, kind: Kind, clients: int) -> None:
    await asyncio.gather(*(trickle(port, kind) for _ in range(clients)))


def probe(port: int, path: str, token: str) -> float:
    """Seconds until the answer is there; the patience where none comes."""
    started = time.monotonic()
    agent = path.endswith("hello")
    head = f"{'POST' if agent else 'GET'} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 2\r\n" if agent else ""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as client:
            client.sendall(f"{head}\r\n{'{}' if agent else ''}".encode())
            if not client.recv(4096):
                return _PATIENCE
    except OSError:
        return _PATIENCE
    return time.monotonic() - started


def watch(port: int, kind: Kind, options: argparse.Namespace, tokens: tuple[str, str]) -> dict[str, list[float]]:
    """The waits of each probe while `kind` is at work in a process of its own."""
    words = [sys.executable, "-m", "bench.dispatch.slow_clients", "--crowd", kind.name, "--port", str(port)]
    words += ["--token", tokens[0], "--clients", str(options.clients if kind.head or not kind.trickle else 0)]
    waits: dict[str, list[float]] = {path: [] for path in _PROBES}
    with subprocess.Popen(words, cwd=ROOT) as process:
        try:
            time.sleep(3)
            until = time.monotonic() + options.seconds
            while time.monotonic() < until:
                for path in _PROBES:
                    waits[path].append(probe(port, path, tokens[1]))
                time.sleep(_PAUSE)
        finally:
            process.kill()
    return waits


@contextlib.contextmanager
def server(words: Sequence[str], environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """The port that it listens at, and its process."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    command = [sys.executable, "-m", "gunicorn", *words, "--bind", f"127.0.0.1:{port}", "--no-control-socket"]
    quiet = {**environment, "TIDEMARK_LOG_LEVEL": "ERROR"}
    with subprocess.Popen(command, cwd=ROOT, env=quiet, stderr=subprocess.DEVNULL) as process:
        try:
            while probe(port, "/healthz", "") >= _PATIENCE:
                time.sleep(0.5)
            for path in _PROBES * 8:
                probe(port, path, "")
            yield port, process.pid
        finally:
            process.terminate()


def issue_tokens(environment: dict[str, str]) -> tuple[str, str]:
    """Two: the crowd's, and that of an agent who wants to get through."""
    subprocess.run([sys.executable, "manage.py", "migrate", "--no-input", "-v0"], cwd=ROOT, env=environment, check=True)
    program = (
        "import django; django.setup(); from server.core.access.tokens import issue_token; "
        "print(*(issue_token(name=n, scope='builder', subject='b') for n in ('crowd', 'agent')))"
    )
    known = {**environment, "DJANGO_SETTINGS_MODULE": "server.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=known, check=True, capture_output=True, text=True
    )
    crowd_token, agent_token = done.stdout.split()
    return crowd_token, agent_token


def report(options: argparse.Namespace) -> int:
    rows: list[list[str]] = []
    usual: dict[str, float] = {}
    held = True
    with servers() as given:
        environment = dict(given)
        tokens = issue_tokens(environment)
        with server(_THREADED if options.threaded else WEB, environment) as (port, _):
            for kind in kinds(tokens[0]):
                for path, waits in watch(port, kind, options, tokens).items():
                    middle, longest = statistics.median(waits), max(waits)
                    times = middle / usual.setdefault(path, middle)
                    holds = TIMES.holds(times) and LONGEST.holds(longest)
                    held = held and holds
                    figures = [f"{middle * 1000:.1f}", f"{longest * 1000:.1f}", f"{times:.1f}"]
                    rows.append([kind.name, path, str(len(waits)), *figures, "pass" if holds else "FAIL"])
                    print(*rows[-1], flush=True)
    print(table([f"{options.clients} clients", "asked", "n", "median ms", "longest ms", "times", ""], rows))
    return 0 if held else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threaded", action="store_true")
    parser.add_argument("--crowd", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--token", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crowd is None:
        return report(options)
    kind = next(kind for kind in kinds(options.token) if kind.name == options.crowd)
    asyncio.run(crowd(options.port, kind, options.clients))
    return 0


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
