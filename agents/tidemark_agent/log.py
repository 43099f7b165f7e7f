"""JSON lines on stderr, with the field names that the server's logs have."""

import json
import sys
import threading
import traceback
from datetime import UTC, datetime
from typing import Protocol

# The event of an agent that ends because the service could not be reached: whoever reads the console blames no host.
GIVEN_UP = "server-given-up"
_lock = threading.Lock()


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> None: ...


class Log:
    """Writes events; `bind` gives a log whose lines all carry some fields."""

    def __init__(self, stream: Stream | None = None, **fields: object) -> None:
        self._stream = stream
        self._fields = fields

    def bind(self, **fields: object) -> "Log":
        return Log(self._stream, **{**self._fields, **fields})

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def failure(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        self._write("error", event, {**fields, "exception": traceback.format_exc()})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        line = {
            **self._fields,
            **fields,
            "event": event,
            "level": level,
            "logger": "tidemark_agent",
            "timestamp": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "process": "agent",
        }
        text = json.dumps(line, default=str)
        with _lock:
            # A closed stderr must not end the work: whoever started the agent may be gone already.
            try:
                print(text, file=self._stream or sys.stderr, flush=True)
            except (OSError, ValueError):
                return
