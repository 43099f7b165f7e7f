"""Simulated hosts as a program of the stack: each asks for work, does it through the real API, and keeps a journal.

    python -m bench.chaos.host_program NAME ... --server URL --folder FOLDER

It may be killed at any moment. What it is about to send and what was acknowledged stand in its journal, a line each;
the lines outlive the process, and by them the auditor knows what the service must have.
"""

import argparse
import json
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

from tidemark_agent.errors import AgentError
from tidemark_agent.log import Log
from tidemark_agent.wire.client import Client

from bench.chaos.study import STUDY
from bench.replay.agent import Wire, held_by_mirror
from demo.lab.replay.agents import VERSION, Agent, MachineAgent, RefusedError
from demo.lab.replay.machines import BY_UARCH, Truth

# So long a request waits for work; short, for each answer shows that the way is open.
_WAIT_SECONDS = 4.0
_PAUSE_SECONDS = 1.0
# How long a boot takes: long enough that faults come in the middle of one.
_BOOT_SECONDS = 0.2
# Of each image, so that a full disk does not take it.
_PADDING = 64 << 10
_RESULT = re.compile(r"attempts/([^/]+)/boots/(\d+)")


@dataclass(frozen=True)
class Entry:
    """One line of a journal. `kind` is sent, stored or known (a boot), image (a file), or answer (any other call)."""

    at: float
    kind: str
    key: str = ""
    position: int = 0
    values: tuple[tuple[str, str, str, tuple[float, ...]], ...] = ()


def read_journal(path: Path) -> Iterator[Entry]:
    """Whole lines of it: the last one may have been cut off."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        values = tuple((case, metric, core, tuple(numbers)) for case, metric, core, numbers in told.pop("values", []))
        yield Entry(**told, values=values)


class Journal:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, kind: str, **more: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            # What a killed process began to write before is a line of its own.
            file.write("\n" + json.dumps({"at": time.time(), "kind": kind, **more}) + "\n")


class JournalWire(Wire):
    def __init__(self, client: Client, journal: Journal) -> None:
        super().__init__(client)
        self._journal = journal

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        found = _RESULT.fullmatch(path)
        if found is None:
            answer = super().post(path, body)
            self._journal.write("answer")
            return answer
        boot = {"key": found[1], "position": int(found[2]), "values": _values(body)}
        self._journal.write("sent", **boot)
        answer = super().post(path, body)
        # Where it was there already, an answer was lost before; or nobody wants it any more.
        self._journal.write("stored" if answer["stored"] else "known", **boot)
        return answer

    def put(self, sha256: str, content: bytes) -> None:
        super().put(sha256, content)
        self._journal.write("image", key=sha256)


def _values(body: Mapping[str, Any]) -> list[list[Any]]:
    return [
        [f"{row['benchmark']}/{row['case']}", row["metric"], row["core_type"], row["values"]]
        for row in body["measurements"]
    ]


def build(agent: Agent, key: str) -> None:
    """As BuilderAgent, but each commit gives other bytes, so that the store has files to lose."""
    order = agent.claim(key, boots_itself=False)
    if order is None:
        return
    told = order["build"]
    kernel = held_by_mirror(told)
    image = json.dumps(
        {"study": kernel.study, "patches": sorted(kernel.patches), "commit": told["commit"], "padding": " " * _PADDING}
    ).encode()
    digest = sha256(image).hexdigest()
    agent.transport.put(digest, image)
    agent.say(
        f"attempts/{key}/build",
        outcome="built",
        reason="",
        seconds=1.0,
        build_id=sha1(image + told["config"]["name"].encode(), usedforsecurity=False).hexdigest(),
        text_hash=sha256(b"text of " + image).hexdigest(),
        kernel_hash=sha256(b"kernel of " + image).hexdigest(),
        compiler_version="gcc (Debian) 14.2.0",
        log_tail="",
        artifacts=[{"kind": "image", "sha256": digest, "size": len(image)}],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--server", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for name in options.names[1:]:
        threading.Thread(target=_host, args=[name, options], daemon=True).start()
    _host(options.names[0], options)


def _host(host: str, options: argparse.Namespace) -> None:
    token_file = options.folder / f"{host}.token"
    while not token_file.exists():
        time.sleep(_PAUSE_SECONDS)
    token = token_file.read_text(encoding="ascii")
    name = uuid.uuid4().hex
    client = Client(server=options.server, token=lambda: token, agent=name, log=Log(host=host), stop=threading.Event())
    agent = Agent(JournalWire(client, Journal(options.folder / f"{host}.journal")), host, name)
    machine = _machine(agent, options.seed)
    back = machine is None
    while True:
        try:
            if machine is not None and not back:
                # It comes up: whatever was under way before is not any more.
                machine.hello()
                back = True
            _ask(agent, machine)
        except (RefusedError, AgentError, OSError) as error:
            print(f"{host}: {error}", file=sys.stderr, flush=True)
            time.sleep(_PAUSE_SECONDS)


def _machine(agent: Agent, seed: int) -> MachineAgent | None:
    uarch = agent.host.rpartition("-")[0]
    if uarch not in BY_UARCH:
        return None
    return MachineAgent(agent, uarch, Truth([STUDY]), seed, pause=lambda: time.sleep(_BOOT_SECONDS))


def _ask(agent: Agent, machine: MachineAgent | None) -> None:
    answer = agent.say("work", version=VERSION, host=agent.host, safe=True, keys=[], wait=_WAIT_SECONDS)
    key = str(answer.get("key") or "")
    if key and machine is not None:
        machine.work(key)
    elif key:
        build(agent, key)
    elif answer.get("again_in"):
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
