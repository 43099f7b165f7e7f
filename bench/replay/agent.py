"""Simulated agents' calls over the wire: the agents' own client, which repeats them until the service answers."""

import argparse
import os
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_agent import errors
from tidemark_agent.log import Log
from tidemark_agent.system.disk import try_lock
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.host import token_reader

from bench.replay.cases import CASES, read_studies
from demo.lab.replay.agents import Agent, BuilderAgent, MachineAgent, RefusedError
from demo.lab.replay.machines import BY_UARCH, Truth
from demo.lab.replay.studies import Kernel, kernel_of

# Longer than any fault lasts.
_PATIENCE_SECONDS = 300.0


class Wire:
    """The transport of an agent in a process of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self._client.post(path, body, patience=_PATIENCE_SECONDS)
        except errors.RefusedError as error:
            raise RefusedError(str(error)) from error

    def put(self, sha256: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self._client.put_artifact(sha256, Path(file.name), patience=_PATIENCE_SECONDS)

    def get(self, sha256: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "image"
            self._client.fetch_artifact(sha256, target, patience=_PATIENCE_SECONDS)
            return target.read_bytes()


# The simulated agent as a program, started by the local dispatcher in place of the real one.
#
#     AGENT run KEY --server URL --token-file FILE --state-dir DIR
#
# The folder's name is the host's. The values of a boot follow from the machine, its kernels and the boot's position,
# so that whatever is killed meanwhile the same is measured.

_LOCK_PATIENCE = 1.0
# How long a boot takes: long enough that faults come in the middle of one.
_BOOT_SECONDS = 0.25
_SEED = 1


def run(cases: Path = CASES) -> int:
    options = _parser().parse_args()
    key, folder = options.key, options.state_dir
    lock = try_lock(folder / f"{key}.lock", patience=_LOCK_PATIENCE)
    if lock is None:
        return 0
    try:
        log = Log(key=key)
        token = token_reader(options.token_file, log)
        name = uuid.uuid4().hex
        client = Client(server=options.server, token=token, agent=name, log=log, stop=threading.Event())
        agent = Agent(Wire(client), folder.name, name)
        uarch = folder.name.removesuffix("-1")
        if uarch not in BY_UARCH:
            BuilderAgent(agent, held_by_mirror).work(key)
            return 0
        truth = Truth(read_studies(cases).values())
        MachineAgent(agent, uarch, truth, _SEED, pause=lambda: time.sleep(_BOOT_SECONDS), salted=False).work(key)
    finally:
        os.close(lock)
    return 0


def held_by_mirror(build: Mapping[str, Any]) -> Kernel:
    """What the commit of a build's order holds, where the service's mirror is a folder of this host."""
    command = ["git", "ls-tree", "--name-only", build["commit"]]
    done = subprocess.run(command, cwd=build["git_url"], capture_output=True, text=True, check=True)
    return kernel_of(done.stdout.splitlines())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=["run"])
    parser.add_argument("key")
    parser.add_argument("--server", required=True)
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    return parser
