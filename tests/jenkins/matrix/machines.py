"""Machines that boot themselves: each an agent of its own in a thread, which dies, hangs and is switched off and on."""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tidemark_agent.errors import AgentError

from tests.jenkins.matrix.speaker import DeadError, Speaker

_POLL_SECONDS = 0.1
_HELLO_SECONDS = 1.5

Alive = Callable[[], None]


class Machine:
    """One machine. What it was given last is in its key file, as on a disk: it outlives every death."""

    def __init__(self, folder: Path, server: str, name: str) -> None:
        self.folder, self.server, self.name = folder, server, name
        self.key_file = folder / "keys" / name
        self.stored: list[tuple[str, int]] = []
        self._life = 0
        self._frozen = False
        self.on = False

    def start(self) -> None:
        """Power on: whatever ran before is gone."""
        self._life += 1
        self._frozen, self.on = False, True
        threading.Thread(target=self._run, args=(self._life,), daemon=True, name=f"machine {self.name}").start()

    def die(self) -> None:
        """Its agent is gone until it is switched off and on."""
        self._life += 1
        self.on = False

    def freeze(self) -> None:
        """It hangs; nothing but its power switch helps."""
        self._frozen = True

    def _run(self, life: int) -> None:
        def alive() -> None:
            while self._frozen and self._life == life:
                time.sleep(_POLL_SECONDS)
            if self._life != life:
                raise DeadError

        try:
            self._live(alive)
        except DeadError:
            return

    def _live(self, alive: Alive) -> None:
        said = 0.0
        while True:
            alive()
            if self.key_file.exists():
                key, agent = self.key_file.read_text().split()
                speaker = Speaker(folder=self.folder, server=self.server, host=self.name, agent=agent, alive=alive)
                # Taken away, or the service was not reached for long: the attempt is over for this machine.
                with contextlib.suppress(AgentError):
                    self._work(speaker, key)
                self.key_file.unlink(missing_ok=True)
                said = 0.0
            if time.monotonic() - said > _HELLO_SECONDS:
                said = time.monotonic()
                self._hello(alive)
            time.sleep(_POLL_SECONDS)

    def _hello(self, alive: Alive) -> None:
        speaker = Speaker(folder=self.folder, server=self.server, host=self.name, alive=alive)
        try:
            speaker.post("hello", version="0.1.0", host=self.name, boot_id="safe", build_id="", safe=True, key="")
        except AgentError:
            return

    def _work(self, speaker: Speaker, key: str) -> None:
        speaker.hold("arrived")
        order = speaker.claim(key)
        if order is None:
            return
        session = order["session"]
        wanted, left = speaker.hold("running", key), len(session["boots"])
        for boot in session["boots"]:
            if not wanted:
                break
            told = self._boot(speaker, key, boot, session["kernels"][boot["arm"]]["build_id"])
            wanted, left = bool(told), left - (told is not None)
        if not left:
            # All is sent: whatever it hears from here on, it has only to say that it ends.
            wanted = True
            speaker.hold("uploaded", key, stubborn=True)
        speaker.end(key, "done" if wanted else "failed", "" if wanted else "stopped")

    def _boot(self, speaker: Speaker, key: str, boot: dict[str, int | str], build_id: str) -> bool | None:
        """Whether to go on; None if it was not wanted at all."""
        path = f"attempts/{key}/boots/{boot['position']}"
        if not speaker.post(f"{path}/start")["continue"]:
            return None
        time.sleep(_POLL_SECONDS)
        values = {"benchmark": "mm-basic", "version": "1", "case": "fault-4k", "metric": "time"}
        answer = speaker.post(
            path,
            outcome="measured",
            boot_id=str(uuid.uuid4()),
            build_id=build_id,
            measurements=[{**values, "values": [3.0, 2.0], "warmup": 1}],
        )
        if answer["stored"]:
            self.stored.append((key.rpartition("-")[0], int(boot["position"])))
        return bool(answer["continue"])
