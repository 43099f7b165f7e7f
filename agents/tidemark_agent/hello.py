"""`hello`: the host tells that it is there, in which system, and at which attempt it works.

It is news for people and for a service that waits for a machine to come back; nothing waits for its answer. Where that
says that the host's token should be renewed, it is.
"""

import threading
from pathlib import Path

from tidemark_agent.boot.running import running_system
from tidemark_agent.client import Client
from tidemark_agent.config import AgentConfig
from tidemark_agent.connection import short_client
from tidemark_agent.credentials import renew_token
from tidemark_agent.errors import AgentError, InfrastructureError, RefusedError
from tidemark_agent.lab.installed import installed_key
from tidemark_agent.lab.journal import Journal
from tidemark_agent.lab.progress import progress_of
from tidemark_agent.log import Log
from tidemark_agent.place import place_here

HEARD, REFUSED, NOT_HEARD = 0, 3, 75
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
        return REFUSED
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
