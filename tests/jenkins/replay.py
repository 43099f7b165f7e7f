"""Recorded exchanges, sent again to the test server, and what of the answers has to be the same."""

import base64
import http.client
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.jenkins.server import JenkinsServer

RECORDINGS = Path(__file__).resolve().parents[2].parent / "shared" / "jenkins-recordings"
_HEADERS = (
    "Location",
    "Content-Type",
    "X-Error",
    "X-Required-Permission",
    "X-You-Are-Authenticated-As",
    "WWW-Authenticate",
    "Allow",
    "X-More-Data",
    "X-Jenkins",
)
# Values that differ from run to run: only their type is compared.
_VOLATILE = {
    "timestamp",
    "inQueueSince",
    "buildableStartMilliseconds",
    "duration",
    "estimatedDuration",
    "progress",
    "likelyStuck",
    "color",
    "crumb",
    "absoluteRemotePath",
    # What an agent's monitors found, and the controller's own.
    "monitorData",
}
_SECONDS = re.compile(r"\d+\.\d+ sec")
_NOTE = re.compile(r"\x1b\[8mha:[^\x1b]*\x1b\[0m")
# A shell may still say that its child was terminated, or be terminated first.
_TEMPORARY = re.compile(r"(?m:^Terminated\n)|(in workspace )\S+(/workspace/)|(/bin/bash )\S+|\d+(?=\.sh)")


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes


class Replay:
    """One recording against one server. `users` names whom a recorded login stands for, where it is another one."""

    def __init__(self, server: JenkinsServer, name: str) -> None:
        self.server = server
        self.exchanges: list[dict[str, Any]] = json.loads((RECORDINGS / f"{name}.json").read_text())["exchanges"]

    def same(self, *numbers: int, **changes: Any) -> None:
        """Send these exchanges' requests and assert that the answers are the recorded ones."""
        for number in numbers:
            recorded = self.exchanges[number]["response"]
            answer = self.send(number, **changes)
            self._equal(number, "status", answer.status, recorded["status"])
            for name in _HEADERS:
                got, wanted = _header(answer.headers, name), _header(recorded["headers"], name)
                self._equal(number, name, got, wanted)
            if "json" in recorded:
                self._equal(number, "json", _value(json.loads(answer.body)), _value(recorded["json"]))
            elif recorded["headers"].get("Content-Type", "").startswith("text/plain"):
                self._equal(number, "text", _text(answer.body.decode()), _text(recorded["body"]))

    def _equal(self, number: int, what: str, got: object, wanted: object) -> None:
        assert got == wanted, f"exchange {number}, {what}:\n{got}\nand not as recorded:\n{wanted}"

    def send(self, number: int, *, secret: str | None = None, headers: dict[str, str] | None = None) -> Answered:
        """One recorded request; `secret` instead of the user's token."""
        request = self.exchanges[number]["request"]
        sent = {name: value for name, value in request["headers"].items() if name == "Content-Type"} | (headers or {})
        user = (request["auth"] or "").removeprefix("basic:")
        if user:
            known = self.server.users.by_name.get(user)
            secret = secret or (known.token if known else "nobody's")
            sent["Authorization"] = f"Basic {base64.b64encode(f'{user}:{secret}'.encode()).decode()}"
        url = request["path"] + (f"?{request['query']}" if request["query"] else "")
        return call(self.server, request["method"], url, body=request["body"], headers=sent)


def call(
    server: JenkinsServer, method: str, url: str, *, body: str | None = None, headers: dict[str, str] | None = None
) -> Answered:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    try:
        connection.request(method, url, (body or "").encode() or None, headers or {})
        response = connection.getresponse()
        return Answered(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


def _text(text: str) -> str:
    return _TEMPORARY.sub(r"\1\2\3", _NOTE.sub("", text.replace("\r\n", "\n")))


def _header(headers: dict[str, str], name: str) -> str | None:
    value = headers.get(name)
    return None if value is None else re.sub(r"^http://[^/]+", "", value).lower()


def _value(value: Any, name: str = "") -> Any:
    if name in _VOLATILE:
        return type(value).__name__
    if isinstance(value, dict):
        return {key: _value(each, key) for key, each in value.items()}
    if isinstance(value, list):
        values = [_value(each) for each in value]
        # A set in Jenkins: in no order.
        return sorted(values, key=str) if name in {"assignedLabels", "computer"} else values
    if isinstance(value, str):
        return _SECONDS.sub("N sec", re.sub(r"^http://[^/]+", "", value))
    return value
