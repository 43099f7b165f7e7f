"""What was changed on this machine and how it was before, on disk before each change.

One JSON object a line. The first names the boot; then comes a line before each change (`parts`), one when it was read
back (`after`), one when it was put back (`undone`). A line that a crash cut off says nothing: the change that it
announces was not begun.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tidemark_agent.disk import make_directory, sync_directory
from tidemark_agent.prepare.steps import NotUnderstoodError, Part, Step, parse_step

_FORMAT = 1


class Journal:
    """The open journal of one boot. `load` first; what it then holds is what is still to be put back."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self.path = path
        self.boot_id = boot_id
        self._steps: dict[int, Step] = {}
        self._last = 0
        self._exists = False
        self.forgotten: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Changes that were not put back, oldest first."""
        return tuple(self._steps.values())

    def load(self) -> tuple[str, ...]:
        """Take up what an agent left; what could not be understood, for people. Raises OSError.

        Changes of another boot are `forgotten`: everything in /proc and /sys, swap and services is as the boot made it.
        """
        self._steps, self._exists = {}, self.path.exists()
        if not self._exists:
            return ()
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            # Killed while the journal was begun: nothing was changed yet.
            self._remove()
            return ()
        first, *lines = whole.decode("utf-8", "replace").splitlines()
        header = _object(first)
        if header.get("format") != _FORMAT or not isinstance(header.get("boot_id"), str):
            return (self._put_aside(f"its first line is {first[:80]!r}"),)
        problems = self._take(lines)
        if header["boot_id"] != self.boot_id:
            self.forgotten = tuple(dict.fromkeys(step.name for step in self.steps))
            self._steps.clear()
            self._remove()
            return problems
        if len(whole) != len(data):
            with self.path.open("r+b") as stream:
                stream.truncate(len(whole))
                os.fsync(stream.fileno())
        return problems

    def begin(self, name: str, parts: tuple[Part, ...]) -> Step:
        """Announce a change; when this returns, it survives a power cut. Raises OSError."""
        if not self._exists:
            self._create()
        self._last += 1
        step = Step(self._last, name, parts)
        self._append({"step": step.number, "name": name, "parts": [asdict(part) for part in parts]})
        self._steps[step.number] = step
        return step

    def settle(self, step: Step, after: tuple[str | None, ...]) -> Step:
        """Note what was read back, by which a later change by somebody else is told from ours."""
        done = replace(step, after=after)
        self._append({"step": step.number, "after": list(after)})
        self._steps[step.number] = done
        return done

    def undone(self, step: Step) -> None:
        """Raises OSError when that cannot be noted; a replay would find the value put back and do nothing."""
        del self._steps[step.number]
        self._append({"step": step.number, "undone": True})

    def close(self) -> None:
        """Delete the journal once everything is put back."""
        if self._exists and not self._steps:
            self._remove()

    def _take(self, lines: list[str]) -> tuple[str, ...]:
        problems = []
        for number, line in enumerate(lines, start=2):
            record = _object(line)
            try:
                step = parse_step(record, self._steps)
            except NotUnderstoodError as error:
                problems.append(f"{self.path.name} line {number} cannot be understood and is passed over: {error}")
                continue
            self._last = max(self._last, step.number)
            if record.get("undone"):
                del self._steps[step.number]
            else:
                self._steps[step.number] = step
        return tuple(problems)

    def _create(self) -> None:
        make_directory(self.path.parent)
        self.path.touch(mode=0o600)
        sync_directory(self.path.parent)
        self._append({"format": _FORMAT, "boot_id": self.boot_id})
        self._exists = True

    def _append(self, record: Mapping[str, Any]) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            size = os.fstat(descriptor).st_size
            line = json.dumps(record).encode() + b"\n"
            try:
                if os.write(descriptor, line) != len(line):
                    raise OSError(28, "no room for the settings journal", str(self.path))
                os.fsync(descriptor)
            except OSError:
                # Half a line in the middle would spoil the next one.
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)

    def _put_aside(self, reason: str) -> str:
        aside = self.path.with_name(f"{self.path.name}.unreadable-{time.time_ns()}")
        self.path.replace(aside)
        sync_directory(self.path.parent)
        self._exists = False
        return f"the settings journal cannot be understood ({reason}) and is kept as {aside.name}"

    def _remove(self) -> None:
        self.path.unlink(missing_ok=True)
        sync_directory(self.path.parent)
        self._exists = False


def _object(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
