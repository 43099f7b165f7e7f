"""A server on loopback that expects one recorded request, byte for byte where bytes count, and answers as recorded."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from tests.jenkins.recordings.files import Exchange

TOKEN = "11aa-recorded-token"
# Made anew here: the length of what is really sent, and who answers.
_NOT_SENT = {"content-length", "server", "transfer-encoding", "connection"}


class Replay:
    """`url` of the server; `expect` sets what comes next; `wrong` lists how requests differed."""

    def __init__(self) -> None:
        self.exchange: Exchange | None = None
        self.asked = 0
        self.wrong: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator["Replay"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def expect(self, exchange: Exchange) -> None:
        self.exchange, self.asked, self.wrong = exchange, 0, []

    def compare(self, method: str, target: str, headers: Any, body: bytes) -> None:
        assert self.exchange is not None
        wanted = self.exchange.request
        path, _, query = target.partition("?")
        self._same("method", method, wanted["method"])
        self._same("path", path, wanted["path"])
        self._same("query", sorted(parse_qsl(query, True)), sorted(parse_qsl(wanted["query"], True)))
        pair = base64.b64encode(f"{self.exchange.user}:{TOKEN}".encode()).decode()
        self._same("Authorization", headers.get("Authorization"), f"Basic {pair}")
        self._same("Content-Type", headers.get("Content-Type"), wanted["headers"].get("Content-Type"))
        self._same("Jenkins-Crumb", headers.get("Jenkins-Crumb"), wanted["headers"].get("Jenkins-Crumb"))
        # Cookies were recorded of a client that keeps them; a token needs none, and ours keeps none.
        self._same("Cookie", headers.get("Cookie"), None)
        self._same("body", body.decode(), wanted["body"] or "")

    def _same(self, what: str, sent: object, recorded: object) -> None:
        if sent != recorded:
            self.wrong.append(f"{what}: {sent!r} was sent, {recorded!r} recorded")


def _handler(replay: Replay) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            assert replay.exchange is not None
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            replay.asked += 1
            replay.compare(self.command, self.path, self.headers, body)
            response, content = replay.exchange.response, replay.exchange.content()
            self.send_response_only(response["status"], response["reason"])
            for name, value in response["headers"].items():
                if name.lower() not in _NOT_SENT:
                    self.send_header(name, value)
            if response["status"] != 204:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_args: object) -> None:
            """Nothing: the test's output is for what differs."""

    return Handler
