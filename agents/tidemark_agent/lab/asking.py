"""`pull = true`: the host asks the service for work itself, where no controller brings it.

A session of a machine that boots itself goes the way of an installed key. All other work (builds, emulated machines,
power cycles) runs in programs of its own, `run KEY`, beside this one, which goes on asking for more.
"""

import queue
import random
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.boot.evidence import running_system
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import AgentError, RefusedError, UnreachableError
from tidemark_agent.lab.hello import DONE, install
from tidemark_agent.log import Log
from tidemark_agent.starter import own_program
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.host import place_here, renew_token

# How long a request may wait at the service; and where something in between ends it before, as it proved.
_WAIT_SECONDS, _SHORT_WAIT_SECONDS = 100.0, 20.0
_BROKEN_AFTER = 25.0
# It may have been a restart as well, after which a whole lab would ask five times as often for good.
_SHORT_FOR_SECONDS = 3600.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
# After a refusal that a person has to mend.
_REFUSED_PAUSE = 300.0
# An answer that there is nothing comes after a while; one that comes at once must not be asked for without end.
_LEAST_WAIT = 5.0
_LOOK_SECONDS = 0.2
# Programs that are asked to end tell the service so.
_GOODBYE_SECONDS = 40.0
_JITTER = random.SystemRandom()


@dataclass
class Asking:
    """The asking of one process. `program` is what the agent is started with, `config_file` what it reads."""

    config: AgentConfig
    client: Client
    log: Log
    stop: threading.Event
    config_file: Path
    root: Path = Path("/")
    program: tuple[str, ...] = field(default_factory=own_program)
    _programs: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _pause: float = _FIRST_PAUSE
    _short_until: float = 0.0
    _told: str = ""

    def installs(self, *, once: bool = False) -> bool:
        """Ask until this machine's own session is installed (True), a program has ended, or the process is to end.

        `once`: only once, for there is something else to be done as well.
        """
        while not self.stop.is_set():
            before = len(self._alive())
            answer = self._answer()
            if len(self._alive()) < before and not (answer or {}).get("key"):
                # What it could not send lies in the spool.
                return False
            key = str((answer or {}).get("key") or "")
            if key and answer and answer.get("inside") is True:
                return self._installs(key)
            if key:
                self._start(key)
            if once:
                return False
        return False

    def end(self) -> None:
        """Ask all programs to end, and see them out."""
        for program in self._programs.values():
            program.terminate()
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for program in self._programs.values():
            try:
                program.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                program.kill()

    def _installs(self, key: str) -> bool:
        if install(key, self.config, place_here(environment={}, root=self.root)) == DONE:
            return True
        self._rest()
        return False

    def _start(self, key: str) -> None:
        self.log.info("work-begins", key=key)
        words = [*self.program, "run", key, "--config", str(self.config_file)]
        self._programs[key] = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def _alive(self) -> dict[str, subprocess.Popen[bytes]]:
        for key, program in list(self._programs.items()):
            if program.poll() is not None:
                self.log.info("work-ended", key=key, status=program.returncode)
                del self._programs[key]
        return self._programs

    def _answer(self) -> Mapping[str, Any] | None:
        """The service's answer to one request; None, after a pause, where it gave none of use."""
        began = time.monotonic()
        try:
            answer = self._asked()
        except RefusedError as error:
            self.log.failure("no-work-for-us", reason=str(error), again_in=_REFUSED_PAUSE)
            self._sleep(_REFUSED_PAUSE)
            return None
        except UnreachableError:
            # The client has said why.
            if time.monotonic() - began > _BROKEN_AFTER:
                self._short_until = time.monotonic() + _SHORT_FOR_SECONDS
            self._rest()
            return None
        if answer is None:
            return None
        self._pause = _FIRST_PAUSE
        if answer.get("renew") is True and not running_system(self.root).is_test_kernel:
            renew_token(self.client, self.config.token_file, self.log)
        if not answer.get("key"):
            self._say_nothing(answer, time.monotonic() - began)
        return answer

    def _say_nothing(self, answer: Mapping[str, Any], took: float) -> None:
        reason = str(answer.get("reason", ""))
        if reason != self._told:
            self.log.info("no-work", reason=reason)
            self._told = reason
        again_in = answer.get("again_in")
        pause = float(again_in) if isinstance(again_in, int | float) else max(0.0, _LEAST_WAIT - took)
        if pause:
            self._sleep(pause)

    def _asked(self) -> dict[str, Any] | None:
        """One request, in a thread: whoever ends this process does not wait for its answer. None when that happens."""
        running = running_system(self.root)
        body = {
            **place_here(environment={}, root=self.root).body(),
            "build_id": running.build_id,
            "safe": not running.is_test_kernel,
            "keys": sorted(self._programs),
            "wait": _SHORT_WAIT_SECONDS if time.monotonic() < self._short_until else _WAIT_SECONDS,
        }
        answers: queue.SimpleQueue[Callable[[], dict[str, Any]]] = queue.SimpleQueue()

        def ask() -> None:
            try:
                answer = self.client.post("work", body, patience=0.0)
            except AgentError as error:
                answers.put(lambda error=error: _raise(error))  # type: ignore[misc]  # (a default binds it)
            else:
                answers.put(lambda: answer)

        threading.Thread(target=ask, name="asking", daemon=True).start()
        while not self.stop.is_set():
            try:
                return answers.get(timeout=_LOOK_SECONDS)()
            except queue.Empty:
                self._alive()
        return None

    def _rest(self) -> None:
        self._sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _sleep(self, seconds: float) -> None:
        """Between half as long and so long: a lab's hosts do not come back all at once."""
        self.stop.wait(_JITTER.uniform(seconds / 2, seconds))


def _raise(error: AgentError) -> dict[str, Any]:
    raise error
