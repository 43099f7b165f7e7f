"""XML-RPC over a unix socket, a connection for each call: supervisor may have gone between two of them."""

import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from xmlrpc.client import ServerProxy, Transport

_SECONDS = 15.0


def call_over_socket(path: Path) -> Any:
    """A proxy whose methods are the server's. They raise OSError when nobody listens, Fault when it refuses."""
    return ServerProxy("http://localhost", transport=_UnixTransport(path))


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS)
        self._path = path

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(_SECONDS)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            raise
        self.sock = sock


class _UnixTransport(Transport):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._open: _UnixConnection | None = None

    def make_connection(self, host: Any) -> HTTPConnection:  # noqa: ARG002 (the path says where)
        self._open = _UnixConnection(self._path)
        return self._open

    def single_request(self, host: Any, handler: str, request_body: Any, verbose: bool = False) -> tuple[Any, ...]:  # noqa: FBT001, FBT002 (the parent's signature)
        try:
            return super().single_request(host, handler, request_body, verbose)
        finally:
            if self._open is not None:
                self._open.close()
