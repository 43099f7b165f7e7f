"""An end to each HTTP request at a fixed time, whatever the other side sends and however slowly."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Watchdog:
    """Ends a request at a fixed time: with a timeout for each read alone, one byte now and then would hold it for ever.

    It is told of new connections as the library's trace, of one after the other: the client may have only one. It keeps
    a second handle of the socket, since TLS takes the first; `forget` gives it back, which no connection ends without.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._bitten = False
        self._lock = threading.Lock()

    def __call__(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            self.forget()
            with self._lock, suppress(OSError):
                self._socket = info["return_value"].get_extra_info("socket").dup()
            if self._bitten:
                self._bite()

    def forget(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def words(self) -> str:
        """Why a request ended, if this ended it."""
        return f"took longer than {self._seconds:g} s" if self._bitten else ""

    @contextmanager
    def on_guard(self) -> Iterator[None]:
        self._bitten = False
        timer = threading.Timer(self._seconds, self._bite)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _bite(self) -> None:
        with self._lock:
            self._bitten = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
