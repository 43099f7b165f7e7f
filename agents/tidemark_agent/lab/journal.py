"""What happened in a session so far, one JSON line for each step, on disk before the next step begins."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidemark_agent.disk import sync_directory
from tidemark_agent.errors import InfrastructureError

_KEPT_ENDED = 5
_KEPT_ASIDE = 5


class JournalError(InfrastructureError):
    """A journal that cannot be understood: nobody may guess what it meant."""


class Journal:
    """The journal of the session that is under way; `directory` also keeps those of the last sessions."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / "session.jsonl"
        self._ended = directory / "ended"
        self._aside = directory / "aside"
        for path in (directory, self._ended, self._aside):
            path.mkdir(parents=True, exist_ok=True)

    def entries(self) -> Iterator[dict[str, Any]]:
        """What was written whole; raises JournalError if anything but the last line is no entry.

        One at a time, for results are large and the agent is to stay small.
        """
        try:
            stream = self._file.open("rb")
        except FileNotFoundError:
            return
        with stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    # A power cut while this line was written: what it tells about had not begun.
                    self._cut(self._file.stat().st_size - len(line))
                    return
                yield _entry(line, number)

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        """Add one entry durably and return it. `at` is for people: no decision may rest on the wall clock."""
        entry = {"event": event, **fields, "at": time.time()}
        line = json.dumps(entry).encode() + b"\n"
        is_new = not self._file.exists()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            # A full disk took half of the line: the next one must not be glued to it.
            os.ftruncate(descriptor, size)
            raise
        finally:
            os.close(descriptor)
        if is_new:
            sync_directory(self._directory)
        return entry

    def close(self, name: str) -> None:
        """Put the journal of a session that is over among the ended ones, of which the last few are kept."""
        self._move(self._ended, name, _KEPT_ENDED)

    def put_aside(self) -> Path:
        """Take a journal that cannot be understood out of the way; where it is now."""
        return self._move(self._aside, "unreadable", _KEPT_ASIDE)

    def _move(self, directory: Path, name: str, kept: int) -> Path:
        numbers = [int(path.stem.partition("-")[0]) for path in directory.glob("[0-9]*-*.jsonl")]
        # Numbered, for times may go backwards on a machine without a clock of its own.
        target = directory / f"{max(numbers, default=0) + 1:06d}-{name}.jsonl"
        self._file.replace(target)
        sync_directory(directory)
        sync_directory(self._directory)
        for path in sorted(directory.glob("[0-9]*-*.jsonl"))[:-kept]:
            path.unlink(missing_ok=True)
        return target

    def _cut(self, size: int) -> None:
        with self._file.open("rb+") as stream:
            stream.truncate(size)
            os.fsync(stream.fileno())


def _entry(line: bytes, number: int) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise JournalError(f"line {number} of the session's journal is no JSON: {line[:80]!r}") from error
    if not isinstance(entry, Mapping) or not isinstance(entry.get("event"), str):
        raise JournalError(f"line {number} of the session's journal is no entry: {line[:80]!r}")
    return dict(entry)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
