"""The test server that plays Jenkins, as a process of its own."""

import base64
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bench.kit import ROOT
from server.lab.dispatch.jenkins.definitions import wanted

# Restarts, lost agents and the like are as fast as in tests; nothing of it happens here.
_FASTER = "50"


@dataclass(frozen=True)
class Controller:
    """A running one. `tokens` are those of all its users."""

    url: str
    user: str
    token: str
    tokens: dict[str, str]

    def define_jobs(self) -> None:
        """The jobs that the lab needs, made as an admin makes them."""
        for job in wanted().jobs.values():
            self._call(f"/createItem?name={quote(job.name)}", job.xml.encode())

    def request_times(self) -> list[float]:
        """When each request of the dispatcher's user arrived."""
        times: list[float] = self._call(f"/testing/requests?user={self.user}")["times"]
        return times

    def _call(self, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}{path}", body)  # noqa: S310 (the server just started)
        login = base64.b64encode(f"admin:{self.tokens['admin']}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        request.add_header("Content-Type", "application/xml")
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (as above)
            return json.loads(answer.read() or b"{}")  # type: ignore[no-any-return]


@contextmanager
def controller(nodes: Sequence[str]) -> Iterator[Controller]:
    """With these nodes, connected; it ends with the block."""
    command = [sys.executable, "-m", "tests.jenkins.server", "--faster", _FASTER]
    for node in nodes:
        command += ["--node", node]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield Controller(**json.loads(process.stdout.readline()))
        finally:
            process.stdin.close()
