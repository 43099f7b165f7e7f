"""A server that answers with any bytes at all, at any speed: what no library would let it say."""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[[socket.socket], None]


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    """An answer with the headers that every one of Jenkins' JSON has, and these."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if not any(header.lower().startswith("content-length") for header in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def json_answer(body: str | bytes, *headers: str, status: str = "200 OK") -> bytes:
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    return answer(status, "Content-Type: application/json;charset=utf-8", *headers, body=content)


def says(content: bytes) -> Talk:
    return lambda connection: connection.sendall(content)


def trickles(content: bytes, seconds: float) -> Talk:
    """One byte after the other, each well within any timeout of a single read."""

    def talk(connection: socket.socket) -> None:
        for byte in content:
            connection.sendall(bytes([byte]))
            time.sleep(seconds)

    return talk


class OddServer:
    """Gives each request the next talk, the last one again and again; `requests` are those that came."""

    def __init__(self, *talks: Talk, at_once: bool = False) -> None:
        self._talks = list(talks)
        self._at_once = at_once
        self.requests: list[bytes] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _converse(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if self._at_once:
                self._talks[0](connection)
                return
            while request := _request(connection):
                self.requests.append(request)
                talk = self._talks.pop(0) if len(self._talks) > 1 else self._talks[0]
                talk(connection)


def _request(connection: socket.socket) -> bytes:
    content = b""
    while b"\r\n\r\n" not in content:
        if not (part := connection.recv(65536)):
            return b""
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def odd_server(*talks: Talk, at_once: bool = False) -> Iterator[OddServer]:
    """`at_once`: the talk begins with the connection and reads what it wants by itself."""
    server = OddServer(*talks, at_once=at_once)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
