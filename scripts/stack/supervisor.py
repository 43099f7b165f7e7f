"""supervisor: its configuration, its start, talking to it, and ending the processes of one stack."""

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from xmlrpc.client import ServerProxy, Transport

from scripts.stack.places import Places, Program, StackError

# Finding and ending the processes of one stack, and no others.
#
# Every process of a stack carries its directory in the environment variable TIDEMARK_STACK and hands it on to its
# children, so processes that lost their parent are found too, and a number that was given to a stranger is not
# mistaken.

MARK = "TIDEMARK_STACK"


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent to notice does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in {"Z", "X"}


def is_marked(pid: int, local: Path) -> bool:
    """Whether process `pid` belongs to the stack in `local`."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={local}".encode() in environment.split(b"\0")


def marked_processes(local: Path) -> list[int]:
    """All living processes of the stack in `local`, except this one and those that wait for it."""
    own = set(_ancestors(os.getpid()))
    return [pid for pid in _all() if pid not in own and is_marked(pid, local) and is_alive(pid)]


def end_marked(local: Path, *, patience: float) -> int:
    """End what is left of the stack in `local`: politely, then after `patience` seconds for certain."""
    found = marked_processes(local)
    _signal_all(found, signal.SIGTERM)
    deadline = time.monotonic() + patience
    while marked_processes(local):
        if time.monotonic() > deadline:
            _signal_all(marked_processes(local), signal.SIGKILL)
        time.sleep(0.05)
    return len(found)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _all() -> Iterator[int]:
    for entry in os.listdir("/proc"):  # noqa: PTH208 (pathlib builds an object for each of hundreds of names)
        if entry.isdigit():
            yield int(entry)


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])


_SECONDS = 15.0


def call_over_socket(path: Path) -> Any:
    """A proxy whose methods are the server's. They raise OSError when nobody listens, Fault when it refuses."""
    return ServerProxy("http://localhost", transport=_UnixTransport(path))


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_SECONDS)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            raise
        self.sock = sock


class _UnixTransport(Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open: _UnixConnection | None = None

    def make_connection(self, host: Any) -> HTTPConnection:  # noqa: ARG002 (the path says where)
        self._open = _UnixConnection(self._path)
        return self._open

    def single_request(self, host: Any, handler: str, request_body: Any, verbose: bool = False) -> tuple[Any, ...]:  # noqa: FBT001, FBT002 (the parent's signature)
        try:
            return super().single_request(host, handler, request_body, verbose)
        finally:
            if self._open is not None:
                self._open.close()


# supervisor waits one second longer after each failed start; with a limit it would give up for good.
_START_RETRIES = 1_000_000
_LOG_LINES = 15
_RETRYING_SECONDS = 8.0


def write_configuration(places: Places, servers: Sequence[Program], services: Sequence[Program]) -> None:
    """Servers start with supervisor and end last; services start when the database is ready for them."""
    socket = places.sockets() / "supervisor.sock"
    parts = [
        f"[unix_http_server]\nfile={_escaped(str(socket))}\nchmod=0600",
        "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
        _main_section(places),
        *(_program_section(places, program, autostart=True) for program in servers),
        *(_program_section(places, program, autostart=False) for program in services),
    ]
    if servers:
        parts.append(_group("servers", 1, servers))
    if services:
        parts.append(_group("services", 2, services))
    places.configuration.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def start_supervisor(places: Places, environment: Mapping[str, str]) -> None:
    """Start supervisor in the background; returns when its socket is there."""
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(places.configuration)]
    done = subprocess.run(
        command, env=dict(environment), cwd=places.root, capture_output=True, text=True, check=False, timeout=30
    )
    if done.returncode != 0:
        raise StackError(f"supervisor did not start: {done.stdout}{done.stderr}")


class Supervisor:
    """Calls over the socket. They raise OSError when no supervisor listens."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._calls = call_over_socket(places.sockets() / "supervisor.sock").supervisor

    def pid(self) -> int:
        return int(self._calls.getPID())

    def shut_down(self) -> None:
        self._calls.shutdown()

    def processes(self) -> list[dict[str, Any]]:
        return list(self._calls.getAllProcessInfo())

    def start_services(self) -> None:
        self._calls.startProcessGroup("services", False)

    def wait_until_running(self, names: Sequence[str], seconds: float) -> None:
        """Wait until each named program has lived long enough; a StackError tells which did not and what it said."""
        deadline = time.monotonic() + seconds
        failing_since: dict[str, float] = {}
        while waiting := [p for p in self.processes() if p["name"] in names and p["statename"] != "RUNNING"]:
            for process in waiting:
                name, state = str(process["name"]), str(process["statename"])
                since = failing_since.setdefault(name, time.monotonic()) if process["spawnerr"] else time.monotonic()
                hopeless = state == "FATAL" or time.monotonic() - since > _RETRYING_SECONDS
                if hopeless or time.monotonic() > deadline:
                    raise StackError(f"{name} does not start ({state}):\n{log_tail(self._places, name)}")
            time.sleep(0.1)


def log_tail(places: Places, name: str) -> str:
    """The last lines of a program's log, with where to find the rest."""
    path = places.log / f"{name}.log"
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    except OSError:
        lines = []
    return "\n".join([*lines, f"(all of it: {path})"])


def clear_logs(places: Places, names: Sequence[str]) -> None:
    """Keep one earlier log of each program, so that a report of a failure shows this start's lines."""
    for name in names:
        path = places.log / f"{name}.log"
        if path.exists():
            path.replace(path.with_suffix(".log.before"))


def _main_section(places: Places) -> str:
    lines = [
        "[supervisord]",
        f"logfile={_escaped(str(places.log / 'supervisord.log'))}",
        "logfile_maxbytes=5MB",
        "logfile_backups=1",
        f"pidfile={_escaped(str(places.run / 'supervisord.pid'))}",
        f"childlogdir={_escaped(str(places.log))}",
        f"directory={_escaped(str(places.root))}",
        "nocleanup=true",
        "umask=077",
    ]
    if Path("/proc/self").stat().st_uid == 0:
        # Said outright, or supervisor warns about it.
        lines.append("user=root")
    return "\n".join(lines)


def _program_section(places: Places, program: Program, *, autostart: bool) -> str:
    environment = {"TIDEMARK_PROCESS": program.name, **program.env}
    # env replaces itself by the program; its words need no other quoting than a shell's.
    words = ["/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()), *program.argv]
    log = places.log / f"{program.name}.log"
    lines = [
        f"[program:{program.name}]",
        f"command={_escaped(shlex.join(words))}",
        f"directory={_escaped(str(places.root))}",
        f"autostart={str(autostart).lower()}",
        "autorestart=true",
        f"startsecs={program.start_seconds}",
        f"startretries={_START_RETRIES}",
        f"stopsignal={program.stop_signal}",
        f"stopwaitsecs={program.stop_seconds}",
        "redirect_stderr=true",
        f"stdout_logfile={_escaped(str(log))}",
        "stdout_logfile_maxbytes=50MB",
        "stdout_logfile_backups=1",
    ]
    return "\n".join(lines)


def _group(name: str, priority: int, programs: Sequence[Program]) -> str:
    names = ",".join(program.name for program in programs)
    return f"[group:{name}]\nprograms={names}\npriority={priority}"


def _escaped(text: str) -> str:
    """What supervisor reads as `text`: it expands %(names)s in its values and takes ` ;` for the start of a comment."""
    if " ;" in text:
        raise StackError(f"supervisor cannot keep a value with ' ;' in it: {text}")
    return text.replace("%", "%%")
