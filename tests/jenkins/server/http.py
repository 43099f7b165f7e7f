"""The HTTP side: connections, log-in, faults on the wire; what is asked for is answered by the routes."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.jenkins.server import answers, routes
from tests.jenkins.server.answers import Answer
from tests.jenkins.server.auth import Login, RefusedError, Users
from tests.jenkins.server.controller import Controller
from tests.jenkins.server.faults import Wire, spoil, translated
from tests.jenkins.server.request import Request, first_values

_COOKIE = "JSESSIONID.00000000"
_LONGEST_HANG_SECONDS = 120.0
_MOST_BODY = 8 * 1024 * 1024


@dataclass(frozen=True)
class Logged:
    """One request that arrived; `status` 0: it got no answer."""

    at: float
    method: str
    path: str
    query: str
    user: str
    status: int


@dataclass
class Site:
    """What each connection needs."""

    controller: Controller
    users: Users
    wire: Wire
    log: Callable[[Logged], None]
    # Who asks for /testing/...; None: nobody is answered there.
    testing: Callable[[str, dict[str, str]], dict[str, Any]] | None = None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers in many packets would wait for each other.
    wbufsize = -1
    disable_nagle_algorithm = True
    site: Site

    def version_string(self) -> str:
        return "Jetty(12.0.25)"

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MOST_BODY))
        if split.path.startswith("/testing/") and self.site.testing is not None:
            self._send(answers.api(self.site.testing(split.path[9:], first_values(split.query))))
            return
        wire, started = self.site.wire, time.time()
        wrong = wire.rule_for(self.command, split.path)
        lifted = wire.lifted
        if wire.delay:
            lifted.wait(wire.delay)
        if wrong in {"hang", "closed"}:
            if wrong == "hang":
                lifted.wait(_LONGEST_HANG_SECONDS)
            self._log(started, 0)
            self._drop()
            return
        answer = self._answer(unquote(split.path), split.query, body)
        if wire.translate is not None:
            answer = translated(answer, wire.translate)
        self._log(started, 0 if wrong == "lost" else answer.status)
        if wrong == "lost":
            self._drop()
        elif wrong == "half":
            self._send(answer, keep=len(answer.body) // 2)
            self._drop()
        else:
            self._send(spoil(answer, wrong) if wrong else answer)

    def _answer(self, path: str, query: str, body: bytes) -> Answer:
        if self.site.wire.starting:
            return answers.unauthorized(path) if self.site.wire.starting == "401" else answers.starting()
        try:
            login = self.site.users.log_in(self.headers.get("Authorization"))
        except RefusedError:
            return answers.unauthorized(path)
        if self.command == "POST" and (login is None or login.by_password) and not self._crumb_holds():
            return answers.no_crumb(path)
        if login is None:
            return answers.nobody(path)
        if path == "/crumbIssuer/api/json":
            return self._crumb()
        request = Request(
            self.site.controller,
            self.command,
            path,
            first_values(query),
            body,
            self.headers.get("Content-Type") or "",
            login,
        )
        with self.site.controller.lock:
            return routes.answer(request)

    def _cookie(self) -> str | None:
        pairs = (part.strip().partition("=") for part in (self.headers.get("Cookie") or "").split(";"))
        return next((value for name, _, value in pairs if name == _COOKIE), None)

    def _crumb_holds(self) -> bool:
        return self.site.users.crumb_holds(self.headers.get("Jenkins-Crumb"), self._cookie())

    def _crumb(self) -> Answer:
        crumb, session = self.site.users.crumb(self._cookie())
        answer = answers.api(
            {
                "_class": "hudson.security.csrf.DefaultCrumbIssuer",
                "crumb": crumb,
                "crumbRequestField": "Jenkins-Crumb",
            }
        )
        cookie = f"{_COOKIE}={session}; Path=/; HttpOnly; SameSite=Lax"
        return Answer(answer.status, answer.body, {**answer.headers, "Set-Cookie": cookie}, versioned=True)

    def _send(self, answer: Answer, keep: int | None = None) -> None:
        with contextlib.suppress(OSError):
            self.send_response(answer.status)
            for name, value in answer.all_headers(self.site.controller.session).items():
                self.send_header(name, value)
            if answer.status != 204:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body if keep is None else answer.body[:keep])
            self.wfile.flush()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header goes by the controller's clock."""
        return formatdate((timestamp or time.time()) + self.site.controller.skew, usegmt=True)

    def _log(self, at: float, status: int) -> None:
        split = urlsplit(self.path)
        with contextlib.suppress(RefusedError):
            login: Login | None = self.site.users.log_in(self.headers.get("Authorization"))
            user = login.user.name if login else ""
            self.site.log(Logged(at, self.command, unquote(split.path), unquote(split.query), user, status))
            return
        self.site.log(Logged(at, self.command, unquote(split.path), unquote(split.query), "?", status))

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Nothing on the terminal."""


class Listener(ThreadingHTTPServer):
    """Listens on one port; closing it also cuts the connections that are open."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, site: Site) -> None:
        handler = type("SiteHandler", (Handler,), {"site": site})
        super().__init__(("127.0.0.1", port), handler)
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True, name="jenkins http")
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no news."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
