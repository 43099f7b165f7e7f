"""An attempt that was installed, its arrival, and the hello of a host."""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tidemark_agent.boot.evidence import running_system
from tidemark_agent.config import AgentConfig
from tidemark_agent.errors import AgentError, InfrastructureError, RefusedError, UnreachableError, file_trouble
from tidemark_agent.lab.journal import Journal, progress_of
from tidemark_agent.log import GIVEN_UP, Log
from tidemark_agent.system.disk import make_directory, sync_directory, write_durably
from tidemark_agent.wire.client import Client
from tidemark_agent.wire.host import Place, place_here, renew_token, short_client

NAME = "installed"


def install_key(state: Path, key: str, place: Place | None = None) -> None:
    """Keep the key durably, with the build that brought it; a later one takes the place of one nobody has begun."""
    make_directory(state / "lab")
    brought = {"job": place.job, "number": place.number, "node": place.node} if place else {}
    write_durably(state / "lab" / NAME, json.dumps({"key": key, **brought}).encode())


def installed_key(state: Path) -> str:
    """The key that waits, or ""; a file that cannot be understood counts as none."""
    return str(_record(state).get("key", ""))


def installed_by(state: Path) -> dict[str, Any]:
    """`job`, `number` and `node` of the build that brought the key, as `place_of` takes them."""
    record = _record(state)
    return {name: record[name] for name in ("job", "number", "node") if record.get(name)}


def _record(state: Path) -> dict[str, Any]:
    try:
        record = json.loads((state / "lab" / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def forget_key(state: Path, key: str) -> None:
    """The session with this key has begun (or is over): another one that came meanwhile stays."""
    if installed_key(state) == key:
        (state / "lab" / NAME).unlink(missing_ok=True)
        sync_directory(state / "lab")


DONE, FAILED, REFUSED, NOT_READY = 0, 1, 3, 75
# `install KEY`: what a dispatcher calls on a machine that boots itself.
#
# First the machine says that the key has arrived. The service then takes the machine out of the dispatcher's hands
# (Jenkins: the node is marked offline) and answers `ready`; only then is the key stored, for the agent's own service
# takes it up at once and may reboot the machine before this program has ended.

READY_SECONDS = 120.0
_PAUSE_SECONDS = 2.0
_CONFLICT = 409


def install(key: str, config: AgentConfig, place: Place, *, seconds: float = READY_SECONDS) -> int:
    """The exit status: 0 the key is stored, or another build has the attempt; 1 the disk failed; 3 refused; 75 the
    service could not be reached, or was not ready within `seconds`.
    """
    log = Log(key=key)
    try:
        client = short_client(config.server, config.token_file, config.ca_file, log, threading.Event())
        is_ready = _arrived(client, key, place, seconds)
    except RefusedError as error:
        if error.status == _CONFLICT:
            _say(f"another build has {key}, or it is over: nothing is installed ({error})")
            return DONE
        _say(f"the service refuses {key}: {error}")
        return REFUSED
    except InfrastructureError as error:
        _say(str(error))
        return REFUSED
    except UnreachableError as error:
        log.failure(GIVEN_UP, reason=str(error))
        _say(f"the service cannot be reached, so {key} is not installed: {error}")
        return NOT_READY
    if not is_ready:
        log.failure(GIVEN_UP, reason="the machine was not made ready in time")
        _say(f"the service did not get this machine ready within {seconds:.0f} s, so {key} is not installed")
        return NOT_READY
    return _store(config.state_dir, key, place)


def _arrived(client: Client, key: str, place: Place, seconds: float) -> bool:
    """Say it again and again until the service is ready; False if it is not in time."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if client.post(f"attempts/{key}/arrive", place.body(), patience=left).get("ready") is True:
            return True
        time.sleep(min(_PAUSE_SECONDS, max(0.0, deadline - time.monotonic())))
    return False


def _store(state: Path, key: str, place: Place) -> int:
    try:
        install_key(state, key, place)
    except OSError as error:
        _say(f"{key} is not installed: {file_trouble(error)}")
        return FAILED
    _say(f"{key} is installed: the agent's service goes on with it")
    return DONE


def _say(text: str) -> None:
    """For whoever reads the build's console."""
    print(f"tidemark-agent: {text}", file=sys.stderr, flush=True)


HEARD, HELLO_REFUSED, NOT_HEARD = 0, 3, 75
# `hello`: the host tells that it is there, in which system, and at which attempt it works.
#
# It is news for people and for a service that waits for a machine to come back; nothing waits for its answer. Where
# that says that the host's token should be renewed, it is.

PATIENCE_SECONDS = 5.0


def say_hello(client: Client, log: Log, *, token_file: Path, key: str, boots: bool, root: Path = Path("/")) -> None:
    """Once; raises the client's errors. `boots`: kernels are booted on this host, so one of them is the safe one."""
    running = running_system(root)
    safe = not running.is_test_kernel if boots else None
    body = {**place_here(root=root).body(), "build_id": running.build_id, "safe": safe, "key": key}
    answer = client.post("hello", body, patience=PATIENCE_SECONDS, failures=1)
    # A kernel under test sees no token that is new: whatever it does, the next one is made in the safe kernel.
    if answer.get("renew") is True and safe is not False:
        renew_token(client, token_file, log)


def say_hello_aside(
    client: Client, log: Log, *, token_file: Path, key: str, boots: bool, root: Path = Path("/")
) -> threading.Thread:
    """Say it in the background: a network that swallows it must not hold up the work. Failure is only logged."""

    def say() -> None:
        try:
            say_hello(client, log, token_file=token_file, key=key, boots=boots, root=root)
        except AgentError as error:
            log.warning("hello-not-heard", reason=str(error))

    thread = threading.Thread(target=say, name="hello", daemon=True)
    thread.start()
    return thread


def run_hello(config: AgentConfig, *, boots: bool) -> int:
    """`tidemark-agent hello`; the exit status: 0 heard, 3 refused, 75 not heard."""
    log = Log()
    try:
        client = short_client(config.server, config.token_file, config.ca_file, log, threading.Event())
        key = current_key(config.state_dir) if boots else ""
        say_hello(client, log, token_file=config.token_file, key=key, boots=boots)
    except (RefusedError, InfrastructureError) as error:
        log.failure("hello-refused", reason=str(error))
        return HELLO_REFUSED
    except AgentError as error:
        log.warning("hello-not-heard", reason=str(error))
        return NOT_HEARD
    return HEARD


def current_key(state: Path) -> str:
    """The attempt under way on this machine, or the installed one, or ""."""
    key = ""
    if (state / "lab" / "session.jsonl").exists():
        try:
            progress = progress_of(Journal(state / "lab").entries())
            key = "" if progress.ended else progress.key
        except (AgentError, OSError):
            # The service puts such a journal aside; here nothing depends on it.
            key = ""
    return key or installed_key(state)
