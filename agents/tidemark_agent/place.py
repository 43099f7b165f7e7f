"""Where this agent runs: on which host, in which boot of it, started by which build of Jenkins."""

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.version import agent_version

_BOOT_ID = re.compile(r"[0-9a-f-]{1,36}")
_LONGEST_JOB, _LONGEST_NODE, _LONGEST_HOST, _LONGEST_SCRIPT = 100, 60, 200, 64
_LARGEST_NUMBER = 2**31 - 1


@dataclass(frozen=True)
class Place:
    """What the service is told beside a key. Empty texts and None: nobody said, or not started by Jenkins.

    `script` is the SHA-256 of the job's script, by which the service sees whether it is its own.
    """

    host: str = ""
    boot_id: str = ""
    job: str = ""
    number: int | None = None
    node: str = ""
    script: str = ""

    def body(self) -> dict[str, object]:
        """As the protocol writes it; what is not known is left out."""
        texts = {"host": self.host, "boot_id": self.boot_id, "job": self.job, "node": self.node, "script": self.script}
        number = {} if self.number is None else {"number": self.number}
        return {"version": agent_version(), **{name: text for name, text in texts.items() if text}, **number}


def place_here(
    job: str | None = None,
    number: str | None = None,
    node: str | None = None,
    script: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> Place:
    """The place of this process; what is None is taken from the environment in which Jenkins starts programs."""
    environment = os.environ if environment is None else environment
    text = environment.get("BUILD_NUMBER", "") if number is None else number
    counted = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_NUMBER)) else None
    return Place(
        host=socket.gethostname()[:_LONGEST_HOST],
        boot_id=boot_id(root),
        job=(environment.get("JOB_NAME", "") if job is None else job)[:_LONGEST_JOB],
        number=counted if counted is None or counted <= _LARGEST_NUMBER else None,
        node=(environment.get("NODE_NAME", "") if node is None else node)[:_LONGEST_NODE],
        script=script[:_LONGEST_SCRIPT],
    )


def place_of(brought_by: Mapping[str, Any], root: Path = Path("/")) -> Place:
    """The place of an agent that goes on with what a build of Jenkins has brought, as the disk remembers it."""
    number = brought_by.get("number")
    return replace(
        place_here(environment={}, root=root),
        job=str(brought_by.get("job", ""))[:_LONGEST_JOB],
        number=number if isinstance(number, int) else None,
        node=str(brought_by.get("node", ""))[:_LONGEST_NODE],
    )


def boot_id(root: Path = Path("/")) -> str:
    """The running kernel's random id, or "" if it shows none."""
    try:
        text = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
    return text if _BOOT_ID.fullmatch(text) else ""
