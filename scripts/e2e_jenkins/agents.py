"""What of a run is on this host: its folder, and Jenkins agents (agent.jar, or whatever command is named)."""

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from scripts.e2e_jenkins.report import Report, StepError

_END_SECONDS = 10
_POLL_SECONDS = 0.1
# Where agents, Jenkins' and ours, write when nobody tells them otherwise, and how what they make there begins.
_STATE = Path("/var/lib")
_DEFAULTS = ("tidemark*", "jenkins*")
# Names with the run's prefix are looked for here, and in the home directory, so many folders deep.
_WRITABLE = (_STATE, Path("/var/tmp"), Path("/tmp"))  # noqa: S108 (only looked at)
_DEPTH = 2
DEFAULT_COMMAND = "java -jar {jar} -url {url} -name {name} -secret @{secret} -webSocket -workDir {folder}"


class Agents(Protocol):
    """What the run asks of a node's Jenkins agent."""

    def start(self, node: str, secret: str) -> None: ...

    def kill(self, node: str) -> None:
        """As a crash would: SIGKILL."""

    def stop_all(self) -> list[str]:
        """End all; returns which there were."""


class ProcessAgents:
    """Agents as processes of this host. `jar` is fetched only where the command names it."""

    def __init__(self, command: str, url: str, folder: Path, jar: Path) -> None:
        self._command = command
        self._url = url
        self._folder = folder
        self._jar = jar
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, node: str, secret: str) -> None:
        place = self._folder / "jenkins" / node
        place.mkdir(parents=True, exist_ok=True)
        file = place / "secret"
        file.touch(mode=0o600)
        file.write_text(secret, encoding="ascii")
        values = {"jar": str(self._jar), "url": self._url, "name": node, "secret": str(file), "folder": str(place)}
        with (place / "log").open("ab") as log:
            self._processes[node] = subprocess.Popen(
                _words(self._command, values), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, node: str) -> None:
        self._end(node, signal.SIGKILL)

    def stop_all(self) -> list[str]:
        names = list(self._processes)
        for node in names:
            self._end(node, signal.SIGTERM)
        return names

    def _end(self, node: str, number: signal.Signals) -> None:
        process = self._processes.pop(node)
        process.send_signal(number)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _words(command: str, values: Mapping[str, str]) -> list[str]:
    return [word.format(**values) for word in shlex.split(command)]


def missing_program(command: str) -> str:
    """The program that the command needs and PATH has not; empty if it has."""
    program = shlex.split(command)[0]
    return "" if shutil.which(program) else program


def is_working(state: Path, key: str) -> bool:
    """Whether a process of our own agent works on the key: it holds the lock for so long."""
    try:
        with (state / f"{key}.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def kill_tidemark_agent(state: Path, key: str) -> int:
    """SIGKILL to the agent that works on the key, as its lock file tells; its pid, 0 if there is none."""
    lock = state / f"{key}.lock"
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(lock.read_text(encoding="ascii").strip())
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
            return pid
    return 0


@contextmanager
def own_folder(prefix: str, report: Report) -> Iterator[Path]:
    """A folder for all that the run writes. Afterwards it is gone, and the report says what of the run is left.

    A lab that works on this host may be writing all the time: only what bears the run's prefix, and places that were
    not there before, are the run's doing.
    """
    before = _default_places()
    living: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix=f"tidemark-{prefix}", ignore_cleanup_errors=True) as name:
            try:
                yield Path(name)
            finally:
                living += _ended_at_last(name)
    finally:
        with report.step("nothing is left on this host") as step:
            left = [f"process {each}" for each in living]
            left += [str(path) for path in sorted(_default_places() - before)]
            left += [str(path) for root in (*_WRITABLE, Path.home()) for path in _named(root, prefix)]
            if left:
                raise StepError(f"left behind: {'; '.join(left)}")
            step.said = f"{name} is gone, and nothing lies elsewhere"


def _default_places() -> set[Path]:
    return {path for pattern in _DEFAULTS for path in _STATE.glob(pattern)}


def _named(root: Path, prefix: str) -> Iterator[Path]:
    """What has the prefix in its name; without links, and without what may not be looked into."""
    for folder, names, files in os.walk(root):
        place = Path(folder)
        yield from (place / name for name in (*names, *files) if prefix in name)
        if len(place.relative_to(root).parts) >= _DEPTH:
            names.clear()


def _ended_at_last(folder: str) -> list[str]:
    """Wait for what works in the folder, and kill what does not end; returns what that was, with its command."""
    end = time.monotonic() + _END_SECONDS
    while (living := _working_in(folder)) and time.monotonic() < end:
        time.sleep(_POLL_SECONDS)
    for pid in living:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {command}" for pid, command in living.items()]


def _working_in(folder: str) -> dict[int, str]:
    """Processes that name the folder on their command line, as all of the run do."""
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            with suppress(OSError):
                command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", errors="replace")
                if f"{folder}/" in command:
                    found[int(place.name)] = command.strip()[:200]
    return found
