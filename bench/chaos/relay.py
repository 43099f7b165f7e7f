"""The way between agents and the service: connections are passed on to one web server after the other, until it is cut.

As a balancer does it. Cut off, it refuses new connections and drops those that are open.
"""

import itertools
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

_HOST, _BYTES = "127.0.0.1", 1 << 16
_CONNECT_SECONDS = 2.0


@dataclass
class Relay:
    port: int
    behind: Sequence[int]
    _listener: socket.socket | None = None
    _open: set[socket.socket] = field(default_factory=set)
    _turn: "itertools.cycle[int]" = field(init=False)

    def __post_init__(self) -> None:
        self._turn = itertools.cycle(range(len(self.behind)))

    def join(self) -> None:
        listener = socket.create_server((_HOST, self.port), backlog=64)
        self._listener = listener
        threading.Thread(target=self._accept, args=[listener], daemon=True).start()

    def cut(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            # A thread that waits in accept() is woken by it.
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for one in list(self._open):
            self._drop(one)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                came, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass_on, args=[came], daemon=True).start()

    def _pass_on(self, came: socket.socket) -> None:
        goes = self._connected()
        if goes is None:
            came.close()
            return
        self._open |= {came, goes}
        back = threading.Thread(target=self._copy, args=[goes, came], daemon=True)
        back.start()
        self._copy(came, goes)
        back.join()
        for one in (came, goes):
            self._drop(one)
            one.close()

    def _connected(self) -> socket.socket | None:
        first = next(self._turn)
        for place in range(len(self.behind)):
            port = self.behind[(first + place) % len(self.behind)]
            try:
                made = socket.create_connection((_HOST, port), timeout=_CONNECT_SECONDS)
            except OSError:
                continue
            made.settimeout(None)
            return made
        return None

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_BYTES):
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _drop(self, one: socket.socket) -> None:
        self._open.discard(one)
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
