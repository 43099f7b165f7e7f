"""Simulated agents: what they say to the service, whichever way it travels, and what builders and machines do."""

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha1, sha256
from typing import Any, Protocol

from demo.lab.replay.machines import BY_UARCH, Moment, Truth, boot_values, facts_of
from demo.lab.replay.studies import Kernel

VERSION = "0.2.0"


class RefusedError(Exception):
    """The service said no."""


class Transport(Protocol):
    """How an agent reaches the service. Both raise RefusedError for answers of 400 to 499."""

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]: ...

    def put(self, sha256: str, content: bytes) -> None: ...

    def get(self, sha256: str) -> bytes: ...


@dataclass(frozen=True)
class Agent:
    """What every agent does first and last."""

    transport: Transport
    host: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def say(self, path: str, **body: Any) -> dict[str, Any]:
        return self.transport.post(path, {"agent": self.name, **body})

    def claim(self, key: str, *, boots_itself: bool) -> dict[str, Any] | None:
        """The assignment; None when the attempt is over or somebody else's."""
        program = {"version": VERSION, "host": self.host}
        try:
            if boots_itself:
                self.say(f"attempts/{key}/arrive", **program)
            return self.say(f"attempts/{key}/claim", **program)
        except RefusedError:
            return None

    def end(self, key: str, *, wanted: bool) -> None:
        self.say(f"attempts/{key}/end", outcome="done" if wanted else "failed", reason="" if wanted else "not wanted")


# What the commit of a build's order holds.
Holding = Callable[[Mapping[str, Any]], Kernel]


def write_image(kernel: Kernel) -> bytes:
    return json.dumps({"study": kernel.study, "patches": sorted(kernel.patches)}).encode()


def read_image(image: bytes) -> Kernel:
    told = json.loads(image)
    return Kernel(told["study"], frozenset(told["patches"]))


@dataclass(frozen=True)
class BuilderAgent:
    """Compiles nothing: the image tells the study and the patches that the commit holds."""

    agent: Agent
    holding: Holding

    def work(self, key: str) -> None:
        order = self.agent.claim(key, boots_itself=False)
        if order is None:
            return
        image = write_image(self.holding(order["build"]))
        digest = sha256(image).hexdigest()
        self.agent.transport.put(digest, image)
        self.agent.say(
            f"attempts/{key}/build",
            outcome="built",
            reason="",
            seconds=1.0,
            build_id=sha1(image + order["build"]["config"]["name"].encode(), usedforsecurity=False).hexdigest(),
            text_hash=sha256(b"text of " + image).hexdigest(),
            kernel_hash=sha256(b"kernel of " + image).hexdigest(),
            compiler_version="gcc (Debian) 14.2.0",
            log_tail="",
            artifacts=[{"kind": "image", "sha256": digest, "size": len(image)}],
        )


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
