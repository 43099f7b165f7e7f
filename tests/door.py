"""A web server that asks who comes, for what has to be kept secret from everybody else on the host."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SECRET = "correct-horse-battery"  # of the server below alone
BASIC = base64.b64encode(f"robot:{SECRET}".encode()).decode()


@dataclass
class Door:
    """A web server that lets in who brings the password. `seen` are command lines of all processes, at each call."""

    url: str = ""
    refused: int = 0
    let_in: int = 0
    seen: list[str] = field(default_factory=list)

    @property
    def with_password(self) -> str:
        """A line of a file of credentials."""
        return self.url.replace("//", f"//robot:{SECRET}@")


@contextmanager
def door(folder: Path) -> Iterator[Door]:
    told = Door()

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            told.seen += [_words(place) for place in Path("/proc").glob("[0-9]*/cmdline")]
            if self.headers.get("Authorization") != f"Basic {BASIC}":
                told.refused += 1
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="trees"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            told.let_in += 1
            super().do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (http.server's name)
            """Tests read `told`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _words(place: Path) -> str:
    try:
        return place.read_bytes().decode(errors="replace")
    except OSError:
        return ""
