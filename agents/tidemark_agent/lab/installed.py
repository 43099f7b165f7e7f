"""Which attempt this machine is to work on next. The service begins it when the present one is over."""

import json
from pathlib import Path
from typing import Any

from tidemark_agent.disk import make_directory, sync_directory, write_durably
from tidemark_agent.place import Place

NAME = "installed"


def install_key(state: Path, key: str, place: Place | None = None) -> None:
    """Keep the key durably, with the build that brought it; a later one takes the place of one nobody has begun."""
    make_directory(state / "lab")
    brought = {"job": place.job, "number": place.number, "node": place.node} if place else {}
    write_durably(state / "lab" / NAME, json.dumps({"key": key, **brought}).encode())


def installed_key(state: Path) -> str:
    """The key that waits, or ""; a file that cannot be understood counts as none."""
    return str(_record(state).get("key", ""))


def installed_by(state: Path) -> dict[str, Any]:
    """`job`, `number` and `node` of the build that brought the key, as `place_of` takes them."""
    record = _record(state)
    return {name: record[name] for name in ("job", "number", "node") if record.get(name)}


def _record(state: Path) -> dict[str, Any]:
    try:
        record = json.loads((state / "lab" / NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def forget_key(state: Path, key: str) -> None:
    """The session with this key has begun (or is over): another one that came meanwhile stays."""
    if installed_key(state) == key:
        (state / "lab" / NAME).unlink(missing_ok=True)
        sync_directory(state / "lab")
