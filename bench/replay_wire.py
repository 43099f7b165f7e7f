"""Simulated agents' calls over the wire: the agents' own client, which repeats them until the service answers."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemark_agent import errors
from tidemark_agent.client import Client

from bench.replay_calls import RefusedError

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
