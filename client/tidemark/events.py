"""What happens, as the service tells it: lines of server-sent events, and the rows that they are."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

# The service says something every 15 seconds, if only that it is there.
SILENCE = 45.0


def told(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A row for each event: its number as `event`, its `kind`, and what its data says.

    `kind` is `transition`; `reset` where too much was missed; empty where the service says where it begins, or that
    it is there. Raises ValueError for what no service tells.
    """
    number, kind, data = "", "", ""
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            number = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value
        elif not line:
            yield {"event": number, "kind": kind, **_row(data)}
            kind, data = "", ""
        elif not name:
            # A comment.
            yield {"event": number, "kind": ""}


def _row(data: str) -> dict[str, Any]:
    row = json.loads(data or "{}")
    if isinstance(row, dict):
        return row
    raise ValueError("an event is no object")
