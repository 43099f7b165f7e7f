"""`install KEY`: which attempt this machine is to work on next. The service begins it when the present one is over."""

import json
from pathlib import Path

from tidemark_agent.disk import make_directory, sync_directory, write_durably

NAME = "installed"


def install_key(state: Path, key: str) -> None:
    """Keep the key durably; a later one takes the place of one that nobody has begun."""
    make_directory(state / "lab")
    write_durably(state / "lab" / NAME, json.dumps({"key": key}).encode())


def installed_key(state: Path) -> str:
    """The key that waits, or ""; a file that cannot be understood counts as none."""
    try:
        record = json.loads((state / "lab" / NAME).read_bytes())
        return str(record["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def forget_key(state: Path, key: str) -> None:
    """The session with this key has begun (or is over): another one that came meanwhile stays."""
    if installed_key(state) == key:
        (state / "lab" / NAME).unlink(missing_ok=True)
        sync_directory(state / "lab")
