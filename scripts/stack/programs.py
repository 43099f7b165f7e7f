"""What a stack runs."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from scripts.stack.places import Places


@dataclass(frozen=True)
class Program:
    """One process that is started again whenever it dies. Secrets do not belong in `argv` or `env`: ps shows them."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    stop_signal: str = "TERM"
    stop_seconds: int = 5
    # It counts as started when it has lived this long.
    start_seconds: int = 1


def server_programs(*, postgres: bool, redis_command: list[str] | None, durable: bool) -> list[Program]:
    """PostgreSQL and Redis, each unless the operator brings one."""
    programs = []
    if postgres:
        words = ["serve-postgres"] + ([] if durable else ["--not-durable"])
        # INT is PostgreSQL's fast shutdown: it waits for no client.
        programs.append(Program("postgres", _module("scripts.stack", *words), stop_signal="INT"))
    if redis_command is not None:
        programs.append(Program("redis", tuple(redis_command)))
    return programs


def service_programs(places: Places, port: int) -> list[Program]:
    """The same processes as in production: web, one worker for all queues, beat."""
    gunicorn = ["gunicorn", "--config", "python:server.web.process", "--bind", f"127.0.0.1:{port}"]
    gunicorn += ["--graceful-timeout", "3"]
    worker = ["celery", "-A", "workers", "worker", "--concurrency", "4"]
    worker += ["--loglevel", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    beat = ["celery", "-A", "workers", "beat", "--schedule", str(places.run / "beat-schedule"), "--pidfile", ""]
    return [
        Program("web", _module(*gunicorn), start_seconds=2),
        # QUIT puts running tasks back on the queue; TERM would wait for the longest of them.
        Program("worker", _module(*worker), stop_signal="QUIT", stop_seconds=6, start_seconds=2),
        Program("beat", _module(*beat), start_seconds=2),
    ]


def _module(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", *words)
