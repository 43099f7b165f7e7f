"""What a stack is made of: its files, its programs, its settings."""

import os
import re
import secrets
import socket
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import getuid
from pathlib import Path


class StackError(Exception):
    pass


# A socket's address holds 107 bytes; supervisor's own temporary name is the longest that follows the directory.
_LONGEST_DIRECTORY = 107 - len("/supervisor.sock.4194304")
# What stands in URLs, a configuration file and a shell alike without quoting.
_PLAIN = re.compile(r"[A-Za-z0-9/._-]+")
_OWNER_ONLY = 0o700


@dataclass(frozen=True)
class Places:
    """`root` is the checkout, `local` the directory of this stack; both absolute."""

    root: Path
    local: Path

    @property
    def run(self) -> Path:
        return self.local / "run"

    @property
    def log(self) -> Path:
        return self.local / "log"

    @property
    def env_file(self) -> Path:
        return self.local / "env"

    @property
    def record(self) -> Path:
        """What the last `up` started: pid, address, programs."""
        return self.run / "stack.json"

    @property
    def configuration(self) -> Path:
        return self.run / "supervisord.conf"

    def make(self) -> None:
        self.local.mkdir(parents=True, exist_ok=True)
        for folder in (self.run, self.log):
            folder.mkdir(mode=_OWNER_ONLY, exist_ok=True)
            folder.chmod(_OWNER_ONLY)

    def sockets(self) -> Path:
        """A private directory whose path is short and plain enough for sockets; the same one at every call."""
        if len(str(self.run)) <= _LONGEST_DIRECTORY and _PLAIN.fullmatch(str(self.run)):
            return self.run
        note = self.run / "sockets"
        if note.exists():
            known = Path(note.read_text(encoding="utf-8").strip())
            if _is_private(known):
                return known
        made = Path(tempfile.mkdtemp(prefix="tidemark-", dir="/tmp"))
        note.write_text(f"{made}\n", encoding="utf-8")
        return made


def _is_private(folder: Path) -> bool:
    """Whether it is ours alone: /tmp is everybody's, and a name there may have changed hands after a reboot."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == getuid() and stat.S_IMODE(found.st_mode) == _OWNER_ONLY


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


FIRST_PORT = 8000
_LAST_PORT = 8099
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9_@%+=:,./?-]*")


def read_env_file(path: Path) -> dict[str, str]:
    """The values in a file that `write_env_file` wrote."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: value.strip("'") for name, _, value in pairs}


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Write NAME=value lines that Django's settings and a shell read alike; only the owner may read them."""
    lines = [
        "# Written at each start of the stack; set the variables in the environment instead of changing them here."
    ]
    for name, value in values.items():
        if "'" in value or "\n" in value:
            raise StackError(f"{name}: a value with a quote or a line end cannot be kept in {path}")
        lines.append(f"{name}={value}" if _PLAIN_VALUE.fullmatch(value) else f"{name}='{value}'")
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    temporary.replace(path)


def secret_key(before: Mapping[str, str]) -> str:
    """The key of the last start, so that sessions and signatures live on, or a new one."""
    return before.get("TIDEMARK_SECRET_KEY") or secrets.token_urlsafe(48)


def choose_port(environ: Mapping[str, str], before: Mapping[str, str]) -> int:
    """TIDEMARK_PORT, which must be free, else the port of the last start, else the first free one from 8000."""
    asked = environ.get("TIDEMARK_PORT", "")
    if asked:
        if not asked.isdigit() or not 0 < int(asked) <= 65535:  # noqa: PLR2004 (TCP's own limit)
            raise StackError(f"TIDEMARK_PORT: {asked} is no port")
        if not _is_free(int(asked)):
            raise StackError(f"port {asked} (TIDEMARK_PORT) is taken on 127.0.0.1: free it or choose another")
        return int(asked)
    last = before.get("TIDEMARK_PORT", "")
    candidates: list[int] = [int(last)] if last.isdigit() else []
    for port in candidates + list(range(FIRST_PORT, _LAST_PORT + 1)):
        if _is_free(port):
            return port
    raise StackError(f"no free port from {FIRST_PORT} to {_LAST_PORT}: set TIDEMARK_PORT")


def listens(port: int) -> bool:
    """Whether something takes connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the web server does: a connection of the last run that fades out does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
