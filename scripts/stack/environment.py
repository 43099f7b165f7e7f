"""The settings of one stack: a file that every process and `manage.py` read, and a free port."""

import os
import re
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

from scripts.stack.errors import StackError

FIRST_PORT = 8000
_LAST_PORT = 8099
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./?-]*")


def read_env_file(path: Path) -> dict[str, str]:
    """The values in a file that `write_env_file` wrote."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name: value.strip("'") for name, _, value in pairs}


def write_env_file(path: Path, values: Mapping[str, str]) -> None:
    """Write NAME=value lines that Django's settings and a shell read alike; only the owner may read them."""
    lines = [
        "# Written at each start of the stack; set the variables in the environment instead of changing them here."
    ]
    for name, value in values.items():
        if "'" in value or "\n" in value:
            raise StackError(f"{name}: a value with a quote or a line end cannot be kept in {path}")
        lines.append(f"{name}={value}" if _PLAIN.fullmatch(value) else f"{name}='{value}'")
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    temporary.replace(path)


def secret_key(before: Mapping[str, str]) -> str:
    """The key of the last start, so that sessions and signatures live on, or a new one."""
    return before.get("TIDEMARK_SECRET_KEY") or secrets.token_urlsafe(48)


def choose_port(environ: Mapping[str, str], before: Mapping[str, str]) -> int:
    """TIDEMARK_PORT, which must be free, else the port of the last start, else the first free one from 8000."""
    asked = environ.get("TIDEMARK_PORT", "")
    if asked:
        if not asked.isdigit() or not 0 < int(asked) <= 65535:  # noqa: PLR2004 (TCP's own limit)
            raise StackError(f"TIDEMARK_PORT: {asked} is no port")
        if not _is_free(int(asked)):
            raise StackError(f"port {asked} (TIDEMARK_PORT) is taken on 127.0.0.1: free it or choose another")
        return int(asked)
    last = before.get("TIDEMARK_PORT", "")
    candidates: list[int] = [int(last)] if last.isdigit() else []
    for port in candidates + list(range(FIRST_PORT, _LAST_PORT + 1)):
        if _is_free(port):
            return port
    raise StackError(f"no free port from {FIRST_PORT} to {_LAST_PORT}: set TIDEMARK_PORT")


def listens(port: int) -> bool:
    """Whether something takes connections on the port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the web server does: a connection of the last run that fades out does not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
