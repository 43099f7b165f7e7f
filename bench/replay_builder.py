"""Simulated builders: they compile nothing and store images that say what they hold."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from typing import Any

from bench.replay_calls import Agent
from bench.replay_kernels import Kernel

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
