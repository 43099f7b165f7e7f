"""A server that falls silent: a way to it on which, once it is shut, nothing moves and nothing is closed."""

import selectors
import socket
import threading
from contextlib import suppress
from pathlib import Path


class Valve:
    """Listens at `path` and passes all on to the server at `target`, both unix sockets, until it is shut."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self._target = path, target
        self._open = threading.Event()
        self._open.set()
        self._ended = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(100)
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def end(self) -> None:
        self._ended = True
        self._open.set()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        self._open.wait()
        server = socket.socket(socket.AF_UNIX)
        self._sockets += [client, server]
        # At the end of the valve both may be closed at any moment, for which a selector has an error of its own.
        with client, server, selectors.DefaultSelector() as both, suppress(OSError, ValueError):
            server.connect(str(self._target))
            both.register(client, selectors.EVENT_READ, server)
            both.register(server, selectors.EVENT_READ, client)
            while not self._ended:
                for key, _ in both.select(0.2):
                    said = client.recv(65536) if key.fileobj is client else server.recv(65536)
                    self._open.wait()
                    if not said:
                        return
                    key.data.sendall(said)
