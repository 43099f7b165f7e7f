"""Agents' calls inside this process, through the service's real URLs."""

import json
from collections.abc import Mapping
from typing import Any

from django.test import Client

from bench.replay_calls import RefusedError
from bench.replay_worker import BrokenError

_JSON, _BYTES = "application/json", "application/octet-stream"
_REFUSED, _BROKEN = 400, 500


class InProcess:
    """Agents' calls by Django's own test client: middleware, authentication, forms and views are the real ones."""

    def __init__(self, token: str) -> None:
        # Errors of views come as answers, as a server would give them.
        self._client = Client(raise_request_exception=True, SERVER_NAME="127.0.0.1")
        self._headers = {"Authorization": f"Bearer {token}"}

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._client.post(f"/api/v1/agent/{path}", json.dumps(body), content_type=_JSON, headers=self._headers)
        told: dict[str, Any] = json.loads(self._checked(path, answer.status_code, answer.content))
        return told

    def put(self, sha256: str, content: bytes) -> None:
        path = f"artifacts/{sha256}"
        answer = self._client.put(f"/api/v1/agent/{path}", content, content_type=_BYTES, headers=self._headers)
        self._checked(path, answer.status_code, answer.content)

    def get(self, sha256: str) -> bytes:
        path = f"artifacts/{sha256}"
        answer: Any = self._client.get(f"/api/v1/agent/{path}", headers=self._headers)
        content = answer.getvalue() if answer.streaming else answer.content
        return self._checked(path, answer.status_code, content)

    @staticmethod
    def _checked(path: str, status: int, content: bytes) -> bytes:
        if status >= _BROKEN:
            raise BrokenError(f"{path}: {status} {content[:500]!r}")
        if status >= _REFUSED:
            raise RefusedError(f"{path}: {status} {content[:500]!r}")
        return content
