"""Simulated machines: they boot what they are told, and measure what the kernel in it gives there."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.replay_builder import read_image
from bench.replay_calls import VERSION, Agent
from bench.replay_facts import facts_of
from bench.replay_kernels import Kernel
from bench.replay_models import BY_UARCH
from bench.replay_samples import Moment, Truth, boot_values

_BOOT_SECONDS = 300
_NAMES = uuid.UUID("6f1d2c5e-9f57-4f2b-9d59-3c9a0b8a7d11")


@dataclass(frozen=True)
class MachineAgent:
    """Boots what it is told in the order of the assignment. `pause` is called before each result is sent."""

    agent: Agent
    uarch: str
    truth: Truth
    seed: int
    pause: Callable[[], None] = lambda: None
    # Sessions of the same kernels give the same values without this.
    salted: bool = True

    def work(self, key: str) -> None:
        boots_itself = not BY_UARCH[self.uarch].virtual
        order = self.agent.claim(key, boots_itself=boots_itself)
        if order is None:
            return
        session = order["session"]
        kernels = {
            arm: (kernel["build_id"], read_image(self.agent.transport.get(kernel["image"])))
            for arm, kernel in session["kernels"].items()
        }
        left = list(session["boots"])
        # After the last boot nothing more is wanted, and all is done.
        while left and self._boot(key, session, left[0], *kernels[left[0]["arm"]]):
            left.pop(0)
        self.agent.end(key, wanted=len(left) <= 1)
        if boots_itself:
            self.hello()

    def hello(self) -> None:
        """It is back in its safe kernel."""
        boot_id = str(uuid.uuid4())
        self.agent.say("hello", version=VERSION, host=self.agent.host, boot_id=boot_id, build_id="", safe=True, key="")

    def _boot(
        self, key: str, session: Mapping[str, Any], boot: Mapping[str, Any], build_id: str, kernel: Kernel
    ) -> bool:
        position = boot["position"]
        path = f"attempts/{key}/boots/{position}"
        if not self.agent.say(f"{path}/start")["continue"]:
            return False
        self.pause()
        rows = self.truth.rows_of(kernel, self.uarch)
        moment = Moment(self.seed, self._salt(session), position)
        measurements, counters = boot_values(rows, kernel, moment, session["cases"])
        ended = datetime.now(UTC)
        answer = self.agent.say(
            path,
            outcome="measured",
            reason="",
            # A boot that is told once more, because its answer was lost, is the same boot.
            boot_id=str(uuid.uuid5(_NAMES, f"{session['id']} {position}")),
            build_id=build_id,
            started_at=(ended - timedelta(seconds=_BOOT_SECONDS)).isoformat(),
            ended_at=ended.isoformat(),
            facts=facts_of(BY_UARCH[self.uarch]),
            measurements=measurements,
            conditions={"counters": counters},
        )
        return bool(answer["continue"])

    def _salt(self, session: Mapping[str, Any]) -> str:
        if self.salted:
            return str(session["id"])
        kernels = session["kernels"]
        return f"{kernels['base']['build_id']} {kernels['patched']['build_id']}"
