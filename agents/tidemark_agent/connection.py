"""A client for short calls that no attempt holds: arrive and hello."""

import threading
import uuid
from pathlib import Path

from tidemark_agent.client import Client
from tidemark_agent.credentials import token_reader
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.log import Log


def short_client(server: str, token_file: Path, ca_file: Path | None, log: Log, stop: threading.Event) -> Client:
    """Speaks under a name of its own: only a claim binds a name to an attempt. Raises InfrastructureError."""
    token = token_reader(token_file, log)
    try:
        token()
    except OSError as error:
        # Whoever calls by hand, or a job, is better off with this than with two minutes of waiting for a file.
        raise InfrastructureError(f"the token cannot be read: {error}") from error
    return Client(server=server, token=token, agent=uuid.uuid4().hex, log=log, stop=stop, ca_file=ca_file)
