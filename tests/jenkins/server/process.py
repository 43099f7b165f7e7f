"""Programs of builds: the job's shell scripts, run for real, as an agent runs them."""

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.jenkins.server.killing import descendants, end_trees, marked, send

# In the environment of everything that a server started.
COOKIE = "JENKINS_SERVER_COOKIE"
_POLL_SECONDS = 0.05
# Output that a program left in the pipe is read for so long after its end: children may still hold it.
_DRAIN_SECONDS = 0.1
_CHUNK = 65536
_REAP_SECONDS = 5.0
# What Jenkins finds a build's processes by. Who sets BUILD_ID anew (dontKillMe) is not one of them.
_MARKS = ("BUILD_ID", "BUILD_TAG", COOKIE)


@dataclass
class Program:
    """The scripts of one build, one after the other, in a thread of their own.

    `output` gets what they print, `ended` their last exit status. A program that is let go of (`detach`) lives on:
    nothing is told of it any more, and its next line of output kills it by SIGPIPE. `patience` is for how many seconds
    a process that is told to end is waited for.
    """

    scripts: Sequence[Path]
    environment: dict[str, str]
    folder: Path
    output: Callable[[bytes], None]
    ended: Callable[[int], None]
    patience: float
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _detached: threading.Event = field(default_factory=threading.Event)
    _running: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._running.set()
        threading.Thread(target=self._run, daemon=True, name=f"program {self.environment.get('BUILD_TAG')}").start()

    def _run(self) -> None:
        status = 0
        for script in self.scripts:
            try:
                status = self._run_one(script)
            except OSError as error:
                # A parameter too long for the environment: E2BIG.
                self.output(f"FATAL: command execution failed\n{error}\n".encode())
                status = -1
            if status != 0 or self._detached.is_set():
                break
        self._running.wait()
        if not self._detached.is_set():
            # What it left in the background, unless it hides.
            end_trees([], self._own_marks, patience=self.patience)
            self.ended(status)

    def _run_one(self, script: Path) -> int:
        process = subprocess.Popen(
            command(script),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        with process.stdout as pipe:
            while process.poll() is None:
                if not self._read(pipe.fileno(), _POLL_SECONDS):
                    break
            self._read(pipe.fileno(), _DRAIN_SECONDS)
        # One whose agent is gone lives on; it is waited for all the same, so that nothing is left of it in the end.
        status = process.wait()
        return 0 if self._detached.is_set() else status

    def _read(self, pipe: int, timeout: float) -> bool:
        """Pass on what is there; False once nobody listens any more. The pipe's end is waited out, not reported."""
        if self._detached.is_set():
            return False
        if not self._running.is_set() or not select.select([pipe], [], [], timeout)[0]:
            return not self._detached.wait(0 if self._running.is_set() else _POLL_SECONDS)
        data = os.read(pipe, _CHUNK)
        if data and not self._detached.is_set():
            self.output(data)
        elif not data:
            self._detached.wait(_POLL_SECONDS)
        return True

    def freeze(self, *, machine: bool) -> None:
        """The agent stands still: nothing is read. With `machine`, the programs stand still as well."""
        self._running.clear()
        if machine:
            self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self._running.set()

    def detach(self) -> None:
        """The agent is gone."""
        self._detached.set()
        self._running.set()

    def terminate(self) -> None:
        """Have all of it end, children first, and what carries this build's mark; nothing here waits for that."""

        def end() -> None:
            end_trees(self._roots, self._own_marks, patience=self.patience)

        threading.Thread(target=end, daemon=True, name=f"end of {self.environment.get('BUILD_TAG')}").start()

    def destroy(self) -> None:
        """The host loses its power."""
        self._signal(signal.SIGKILL)

    def reap(self) -> None:
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_REAP_SECONDS)

    @property
    def _own_marks(self) -> dict[str, str]:
        return {name: self.environment[name] for name in _MARKS}

    @property
    def _roots(self) -> list[int]:
        return [process.pid for process in self.processes if process.returncode is None]

    def _signal(self, number: signal.Signals) -> None:
        below = [pid for root in self._roots for pid in (root, *descendants(root))]
        send({*marked(self._own_marks), *below}, number)


def command(script: Path) -> list[str]:
    """The interpreter of the script's first line; without one, as Jenkins does, `sh -xe`."""
    first = script.read_text(encoding="utf-8").partition("\n")[0]
    shell = first[2:].split() if first.startswith("#!") else ["/bin/sh", "-xe"]
    return [*shell, str(script)]
