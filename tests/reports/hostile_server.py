"""A mail server that does what its script says, to the byte."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Talk = Callable[["Line"], None]


class Line:
    """One connection, from the server's side."""

    def __init__(self, peer: socket.socket, taken: list[bytes]) -> None:
        self._peer = peer
        self._stream = peer.makefile("rb")
        self.taken = taken
        self.commands: list[str] = []

    def close(self) -> None:
        self._stream.close()

    def say(self, *lines: str) -> None:
        self._peer.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def trickle(self, text: str, pause: float) -> None:
        with suppress(OSError):
            for sign in text:
                self._peer.sendall(sign.encode())
                time.sleep(pause)

    def hear(self) -> str:
        line = self._stream.readline().decode().strip()
        self.commands.append(line)
        return line

    def take(self) -> bytes:
        """A mail up to its dot."""
        content = b""
        while (line := self._stream.readline()) not in {b".\r\n", b""}:
            content += line
        self.taken.append(content)
        return content

    def greet(self, *extensions: str) -> None:
        self.say("220 mx.example.org ESMTP")
        self.hear()
        told = ["mx.example.org", *extensions]
        self.say(*(f"250-{one}" for one in told[:-1]), f"250 {told[-1]}")

    def serve(self, answers: dict[str, str]) -> None:
        """Answers by the beginning of the command; 250 else. `.` is the answer to a whole mail."""
        while command := self.hear():
            found = next((said for start, said in answers.items() if command.upper().startswith(start)), "250 OK")
            if command.upper() == "DATA" and found == "250 OK":
                self.say("354 go on")
                self.take()
                found = answers.get(".", "250 taken")
            if not found:
                return
            self.say(*found.split("\n"))
            if command.upper() == "QUIT" or found.startswith("421"):
                return


class HostileServer:
    """Each connection follows the next script; the last one again and again."""

    def __init__(self, *scripts: Talk) -> None:
        self._scripts = list(scripts)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.taken: list[bytes] = []
        self.lines: list[Line] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                peer, _ = self._socket.accept()
                script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
                line = Line(peer, self.taken)
                self.lines.append(line)
                with suppress(OSError), peer:
                    script(line)
                    with suppress(OSError):
                        peer.shutdown(socket.SHUT_RDWR)
                line.close()

    def end(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def hostile_server(*scripts: Talk) -> Iterator[HostileServer]:
    server = HostileServer(*scripts)
    try:
        yield server
    finally:
        server.end()
