"""Jenkins agents of this host: agent.jar over WebSocket, or whatever command the operator names."""

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_END_SECONDS = 10
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


def kill_tidemark_agent(state: Path, key: str) -> int:
    """SIGKILL to the agent that works on the key, as its lock file tells; its pid, 0 if there is none."""
    lock = state / f"{key}.lock"
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        pid = int(lock.read_text(encoding="ascii").strip())
        if pid > 1:
            os.kill(pid, signal.SIGKILL)
            return pid
    return 0
