"""gunicorn's settings: `gunicorn --config python:server.web.process --bind ADDRESS`."""

import gc
import os
from typing import Any

os.environ.setdefault("TIDEMARK_PROCESS", "web")
os.environ.setdefault("TIDEMARK_DATABASE_SECONDS", "15")
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "server.settings")

wsgi_app = "server.asgi:application"
worker_class = "server.web.connections.Worker"
workers = int(os.environ.get("TIDEMARK_WEB_PROCESSES", "2"))
# Of one process. What comes beyond makes room for itself. A host that asks for work keeps one.
worker_connections = int(os.environ.get("TIDEMARK_WEB_CONNECTIONS", "1000"))
backlog = 2048
# A process that a leak, or a page nobody thought of, has made large does not stay for ever. Only pages are counted
# (server/web/connections.py): hosts that ask for work come by the thousand, and wait.
max_requests = 5000
max_requests_jitter = 1000
# The event loop of a process says every second that it lives.
timeout = 30
# An upload that is on its way when a process ends is sent again by its agent.
graceful_timeout = 10
keepalive = 15
# A path of 4 kB and 64 fields of 8 kB are more than any client of ours sends.
limit_request_line = 8190
limit_request_fields = 64
limit_request_field_size = 8190
asgi_lifespan = "off"
asgi_loop = "asyncio"
control_socket_disable = True


def post_worker_init(_worker: Any) -> None:
    """What is there now stays: looked through again after every few hundred objects of an answer, as Python does by
    itself, it takes a third of the time of a large one.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
