"""`serve FOLDER`: starts and ends agents as a worker asks that runs elsewhere on this host, in another container.

The worker has the site's secrets, and agents build what strangers wrote: so they share a folder and nothing else. In it
FOLDER/orders/KEY.start asks for an agent (JSON: key, subject, server), KEY.stop for its end. An agent's state is in
FOLDER/SUBJECT, its token in FOLDER/../tokens/SUBJECT. Whoever holds the lock FOLDER/serve.lock is there to answer.
`check`: whether this host may build other people's kernels at all; `serve` does not begin where it may not.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tidemark_agent.errors import UnfitError
from tidemark_agent.log import Log
from tidemark_agent.system.disk import is_locked, read_strange, try_lock
from tidemark_agent.system.process import require_memory_group
from tidemark_agent.system.sandbox import require_sandbox

FIT, UNFIT = 0, 3
_LOOK_SECONDS = 0.2
# An agent that is asked to end says goodbye to the service; whoever ends a container waits ten seconds for all.
_GOODBYE_SECONDS = 8.0
_LARGEST_ORDER = 64 * 1024
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,59}")
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def troubles(*, sandbox: bool = True, cgroup: bool = True) -> list[str]:
    """Why this host may not build other people's kernels, as far as the operator wants to know it."""
    checks: list[Callable[[], None]] = []
    with tempfile.TemporaryDirectory() as scratch:
        if sandbox:
            checks.append(lambda: require_sandbox(Path(scratch), threading.Event()))
        if cgroup:
            checks.append(require_memory_group)
        return [trouble for trouble in map(_trouble, checks) if trouble]


def _trouble(check: Callable[[], None]) -> str:
    try:
        check()
    except UnfitError as error:
        return str(error)
    return ""


def print_troubles(*, sandbox: bool = True, cgroup: bool = True) -> int:
    """`tidemark-agent check`; the exit status: 0 fit, 3 unfit."""
    found = troubles(sandbox=sandbox, cgroup=cgroup)
    for trouble in found:
        print(f"tidemark-agent: {trouble}", file=sys.stderr)
    return UNFIT if found else FIT


def serve(folder: Path, *, sandbox: bool = True, cgroup: bool = True) -> int:
    """Until SIGTERM; refuses with status 3 where agents would refuse each build."""
    if status := print_troubles(sandbox=sandbox, cgroup=cgroup):
        return status
    # Who sees the lock may say at once that it is to end.
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    lock = try_lock(folder / "serve.lock", patience=_GOODBYE_SECONDS)
    if lock is None:
        print(f"tidemark-agent: another one serves {folder}", file=sys.stderr)
        return UNFIT
    starter = Starter(folder, Log())
    while not stop.wait(_LOOK_SECONDS):
        starter.look()
    starter.end_all()
    os.close(lock)
    return 0


def own_program() -> tuple[str, ...]:
    """What this program is started with, before its words."""
    root = Path(__file__).resolve().parents[1]
    return (sys.executable, str(root)) if root.is_file() else (sys.executable, "-m", "tidemark_agent")


class Starter:
    """Carries out the orders in one folder. `program` is what an agent is started with, before `run KEY ...`."""

    def __init__(self, folder: Path, log: Log, program: tuple[str, ...] = ()) -> None:
        self._folder = folder
        self._orders = folder / "orders"
        self._log = log
        self._program = program or own_program()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._orders.mkdir(parents=True, exist_ok=True)

    def look(self) -> None:
        """Carry out what is asked. What was begun when the last one died is begun again: an agent that lives is one."""
        for order in sorted(self._orders.glob("*.start")):
            self._start(order)
        for key, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[key]
        for order in sorted(self._orders.glob("*.stop")):
            self._stop(order)

    def end_all(self) -> None:
        """Ask all agents to end, and see them out."""
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + _GOODBYE_SECONDS
        for child in self._children.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()

    def _start(self, order: Path) -> None:
        try:
            about = json.loads(read_strange(order.parent, order.name, _LARGEST_ORDER))
            key, subject, server = (str(about[name]) for name in ("key", "subject", "server"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._log.failure("order-unreadable", order=order.name, reason=str(error))
            order.unlink(missing_ok=True)
            return
        child = self._children.get(key)
        if child is None and _KEY.fullmatch(key) and _SUBJECT.fullmatch(subject):
            self._run(key, subject, server)
        elif child is None or child.poll() is not None or is_locked(self._folder / subject / f"{key}.lock"):
            # Not before the agent shows by its lock that it lives: else it would be taken for one that has ended.
            order.unlink(missing_ok=True)

    def _run(self, key: str, subject: str, server: str) -> None:
        state = self._folder / subject
        state.mkdir(mode=0o700, exist_ok=True)
        words = ["run", key, "--server", server, "--state-dir", str(state)]
        words += ["--token-file", str(self._folder.parent / "tokens" / subject)]
        with (state / f"{key}.log").open("ab") as output:
            self._children[key] = subprocess.Popen(
                [*self._program, *words],
                cwd=state,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._log.info("agent-started", key=key)

    def _stop(self, order: Path) -> None:
        child = self._children.get(order.stem)
        if child is not None and child.poll() is None:
            child.kill()
            self._log.info("agent-killed", key=order.stem)
        order.unlink(missing_ok=True)
