"""Runs agents as processes of this host: the embedded default.

Either this process starts them itself, or, where it holds secrets that must not lie beside strangers' builds, it asks
`tidemark-agent serve` for it: a program in another container that shares only the folder of the agents' states
(TIDEMARK_LOCAL_AGENTS=apart).

Whether an agent lives is told by the lock file it holds: the kernel releases it at any death, and a worker that is
killed between starting the agent and noting its pid loses nothing.
"""

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from django.conf import settings

from server.core.access.tokens import find_token, is_due, issue_token
from server.core.errors import DomainError
from server.core.files import folder_below, forget_files, open_below
from server.core.models import ApiToken
from server.core.programs.sandbox import unbound
from server.lab.port import Dispatcher, DispatchError, HostSighting, Observed, Sighting, Sightings, Work, dispatcher

log = structlog.get_logger(__name__)

# An agent needs these and nothing of the service's own environment: no database address, no secret key.
_LONGEST_PID = 20
# What stands in the place of a lock or an order and is no plain file is none: agents run strangers' code beside it.
_NO_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EACCES})
_CHECK_SECONDS = 60
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "TIDEMARK_CCACHE_DIR", "TIDEMARK_STACK")


class LocalDispatcher(Dispatcher):
    name = "local"
    about = "the local dispatcher: agents on the service's own host"
    is_local = True

    @property
    def slots(self) -> int:
        return int(settings.LOCAL_SLOTS)

    def submit(self, work: Work) -> None:
        agent = Path(settings.LOCAL_AGENT)
        if _is_apart():
            if not (host := _host()).connected:
                raise DispatchError("nobody-starts-agents", host.detail, permanent=False)
        elif not agent.is_file():
            raise DispatchError("agent-missing", f"no agent program at {agent}: run make setup", permanent=False)
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            state_dir = _state_dir(work)
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not _mark(_lock_file(work)):
                return
            if _is_apart():
                _order_start(work)
                return
            # setsid --fork: the agent outlives the worker that started it, and no worker has to reap it.
            # Its builds and virtual machines have limits of their own, and not this process's.
            command = [*unbound(), "setsid", "--fork", sys.executable, str(agent), "run", work.key]
            command += ["--server", settings.AGENT_URL, "--token-file", str(_token_file(work))]
            command += ["--state-dir", str(state_dir)]
            output_file = open_below(_agents(), state_dir / f"{work.key}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            with os.fdopen(output_file, "ab") as output:
                subprocess.run(
                    command,
                    env=environment,
                    cwd=state_dir,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    check=True,
                    timeout=10,
                )
        except (OSError, subprocess.SubprocessError) as error:
            with contextlib.suppress(OSError):
                _lock_file(work).unlink(missing_ok=True)
            raise DispatchError("agent-start", f"cannot start the agent: {error}", permanent=False) from error
        log.info("agent_started", key=work.key)

    def look(self, works: Sequence[Work]) -> Sightings:
        return Sightings(
            works={work.key: Sighting(self._observed(work)) for work in works},
            hosts={work.host: _host() for work in works},
        )

    def cancel(self, work: Work) -> bool:
        try:
            if _is_apart():
                _take_back(_order(work, "start"))
            pid = _holder(_lock_file(work))
            if pid is None:
                return True
            if _is_apart():
                _write_order(_order(work, "stop"), "")
            else:
                _kill(pid, signal.SIGKILL)
        except OSError as error:
            raise DispatchError("agent-stop", f"cannot stop the agent: {error}", permanent=False) from error
        return False

    def hold(self, hosts: Mapping[str, str]) -> frozenset[str]:
        """Nobody else gives work to this host's agents."""
        return frozenset(hosts)

    @staticmethod
    def _observed(work: Work) -> Observed:
        lock = _lock_file(work)
        if not os.path.lexists(lock):
            return Observed.ABSENT
        if _is_apart() and os.path.lexists(_order(work, "start")):
            return Observed.WAITING
        return Observed.ALIVE if _holder(lock) is not None else Observed.ENDED


def require_walls() -> None:
    """Raise DomainError `unfit` where the agents that this process is to start would refuse every build."""
    agent = Path(settings.LOCAL_AGENT)
    if not isinstance(dispatcher(), LocalDispatcher) or _is_apart() or not agent.is_file():
        return
    if (settings.BUILD_SANDBOX, settings.BUILD_CGROUP) == ("none", "optional"):
        return
    words = [
        sys.executable,
        str(agent),
        "check",
        "--sandbox",
        settings.BUILD_SANDBOX,
        "--cgroup",
        settings.BUILD_CGROUP,
    ]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, timeout=_CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DomainError("unfit", f"builds cannot be shut off here: {error}") from error
    if done.returncode:
        told = done.stderr.strip().removeprefix("tidemark-agent: ")
        raise DomainError("unfit", f"{told} (TIDEMARK_BUILD_SANDBOX, TIDEMARK_BUILD_CGROUP)")


def stop_agents() -> int:
    """Ask every local agent to end; returns how many were asked. Their attempts are found lost and planned again.

    Those that run apart are ended with the program that started them.
    """
    if _is_apart():
        return 0
    locks = (settings.STATE_DIR / "agents").glob("*/*.lock")
    pids = [pid for pid in map(_holder, locks) if pid is not None]
    for pid in pids:
        _kill(pid, signal.SIGTERM)
    return len(pids)


def forget_old_logs() -> int:
    """Remove logs and locks of agents that ended a month ago; returns how many files."""
    return forget_files(settings.STATE_DIR / "agents", ("*/*.log", "*/*.lock"), days=30)


def _mark(lock: Path) -> bool:
    """Make the lock's file; False if it is there: the key was submitted before, even if its agent holds nothing yet."""
    try:
        with folder_below(_agents(), lock.parent) as folder:
            os.close(os.open(lock.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder))
    except FileExistsError:
        return False
    return True


def _holder(lock: Path) -> int | None:
    """The pid of the agent that holds `lock`, or None if nobody does."""
    try:
        descriptor = open_below(_agents(), lock)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise DispatchError("lock-unreadable", f"cannot read a lock: {error}", permanent=False) from error
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            content = file.read(_LONGEST_PID).strip()
            return int(content) if content.isdigit() else 0
    return None


def _is_apart() -> bool:
    return bool(settings.LOCAL_AGENTS == "apart")


def _host() -> HostSighting:
    """The one host of a local site: there as long as somebody starts agents."""
    if _is_apart() and _holder(_agents() / "serve.lock") is None:
        return HostSighting(connected=False, detail="`tidemark-agent serve` does not run: see its container's log")
    return HostSighting(connected=True)


def _order_start(work: Work) -> None:
    _token_file(work)
    about = {"key": work.key, "subject": work.subject, "server": settings.AGENT_URL}
    _write_order(_order(work, "start"), json.dumps(about))
    log.info("agent_ordered", key=work.key)


def _order(work: Work, what: str) -> Path:
    return _agents() / "orders" / f"{work.key}.{what}"


def _write_order(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".new")
    _take_back(temporary)
    with folder_below(_agents(), path.parent) as folder:
        descriptor = os.open(temporary.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)


def _take_back(order: Path) -> None:
    with contextlib.suppress(FileNotFoundError), folder_below(_agents(), order.parent) as folder:
        os.unlink(order.name, dir_fd=folder)


def _kill(pid: int, number: signal.Signals) -> None:
    if pid <= 1:
        return
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        log.info("agent_gone", pid=pid)


def _agents() -> Path:
    path: Path = settings.STATE_DIR / "agents"
    return path


def _state_dir(work: Work) -> Path:
    return _agents() / work.subject


def _lock_file(work: Work) -> Path:
    return _state_dir(work) / f"{work.key}.lock"


def _token_file(work: Work) -> Path:
    """A file with a valid token of this machine or builder, made when there is none."""
    folder: Path = settings.STATE_DIR / "tokens"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / work.subject
    token = find_token(path.read_text(encoding="ascii").strip()) if path.exists() else None
    # Agents in a container of their own cannot write here, so nobody else renews it.
    if token is not None and not is_due(token):
        return path
    secret = issue_token(name=f"local {work.subject}", scope=ApiToken.Scope(work.scope), subject=work.subject)
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret)
    temporary.replace(path)
    return path
