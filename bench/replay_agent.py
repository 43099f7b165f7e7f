"""The simulated agent as a program, started by the local dispatcher in place of the real one.

    AGENT run KEY --server URL --token-file FILE --state-dir DIR

The folder's name is the host's. The values of a boot follow from the machine, its kernels and the boot's position, so
that whatever is killed meanwhile the same is measured.
"""

import argparse
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_agent.client import Client
from tidemark_agent.credentials import token_reader
from tidemark_agent.locks import try_lock
from tidemark_agent.log import Log

from bench.replay_builder import BuilderAgent
from bench.replay_calls import Agent
from bench.replay_kernels import Kernel, kernel_of
from bench.replay_machine import MachineAgent
from bench.replay_models import BY_UARCH
from bench.replay_samples import Truth
from bench.replay_studies import CASES, read_studies
from bench.replay_wire import Wire

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
            BuilderAgent(agent, _held_by).work(key)
            return 0
        truth = Truth(read_studies(cases).values())
        MachineAgent(agent, uarch, truth, _SEED, pause=lambda: time.sleep(_BOOT_SECONDS), salted=False).work(key)
    finally:
        os.close(lock)
    return 0


def _held_by(build: Mapping[str, Any]) -> Kernel:
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
