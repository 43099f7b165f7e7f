"""Web servers on loopback that do what no archive should."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Answer = Callable[[socket.socket], None]


@contextmanager
def serving(answer: Answer, *, at_once: bool = False) -> Iterator[str]:
    """An address whose every connection `answer` gets after the request was read, or at once."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ending = threading.Event()

        def serve() -> None:
            while not ending.is_set():
                with suppress(OSError):
                    connection, _ = server.accept()
                    threading.Thread(target=_one, args=(connection, answer, at_once), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ending.set()
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def _one(connection: socket.socket, answer: Answer, at_once: bool) -> None:
    with connection, suppress(OSError):
        connection.settimeout(5)
        if not at_once:
            connection.recv(65536)
        answer(connection)


def content(body: bytes, *headers: str) -> Answer:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close", *headers, "", ""]
    return lambda connection: connection.sendall("\r\n".join(lines).encode() + body)


def hang(connection: socket.socket) -> None:
    connection.recv(1)


def trickle(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def garbage(connection: socket.socket) -> None:
    connection.sendall(b"\x00\xff" * 5000)
