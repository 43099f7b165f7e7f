"""`install KEY`: what a dispatcher calls on a machine that boots itself.

First the machine says that the key has arrived. The service then takes the machine out of the dispatcher's hands
(Jenkins: the node is marked offline) and answers `ready`; only then is the key stored, for the agent's own service
takes it up at once and may reboot the machine before this program has ended.
"""

import sys
import threading
import time
from pathlib import Path

from tidemark_agent.client import Client
from tidemark_agent.config import AgentConfig
from tidemark_agent.connection import short_client
from tidemark_agent.errors import InfrastructureError, RefusedError, UnreachableError, file_trouble
from tidemark_agent.lab.installed import install_key
from tidemark_agent.log import GIVEN_UP, Log
from tidemark_agent.place import Place

DONE, FAILED, REFUSED, NOT_READY = 0, 1, 3, 75
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
