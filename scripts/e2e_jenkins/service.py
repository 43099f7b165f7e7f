"""The service's own HTTP for the agents of the run, on loopback, in threads of this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from django.core.wsgi import get_wsgi_application


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_args: object) -> None:
        """Nothing: the run's output is its steps."""


@contextmanager
def listening() -> Iterator[_Server]:
    """Listens at once, and answers once `answering` runs: its address is needed before Django is set up."""
    server = make_server("127.0.0.1", 0, _not_yet, server_class=_Server, handler_class=_Quiet)
    try:
        yield server
    finally:
        server.server_close()


def _not_yet(_environ: object, _start_response: object) -> list[bytes]:
    raise RuntimeError("the service is not set up")


@contextmanager
def answering(server: _Server) -> Iterator[None]:
    server.set_app(get_wsgi_application())
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
