"""What was changed, on disk before it is changed, so that a killed agent can be undone."""

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidemark_agent.system.disk import make_directory, sync_directory

# The journal is obeyed by root: it may name files of the kernel and nothing else, which proc/1/root/... is not.
_FILE = re.compile(r"(?:proc/(?:sys|irq)|sys)/.+")
_FILE_KINDS = {"word", "cpus", "mask", "cpuset", "pool"}
_OTHER_KINDS = {"swap", "service"}


class NotUnderstoodError(ValueError):
    """A line of the journal that this agent cannot have written."""


@dataclass(frozen=True)
class Part:
    """One value of a change: what sort of thing, which one, how it was, how it is wanted.

    A dependent part changes along with another one, as the pools of single nodes do with the pool of the machine: it is
    put back whatever it is then, after the other. One that is wanted as "" is only put back, not set.
    """

    kind: str
    target: str
    before: str
    wanted: str
    dependent: bool = False

    @property
    def is_set(self) -> bool:
        return not self.dependent or self.wanted != ""


@dataclass(frozen=True)
class Step:
    """One change. `after` is what was read back for each part (None: it could not be read), or None as long as nobody
    knows whether the change was made at all.
    """

    number: int
    name: str
    parts: tuple[Part, ...]
    after: tuple[str | None, ...] | None = None


def parse_step(record: Mapping[str, Any], known: Mapping[int, Step]) -> Step:
    """The step that a line of the journal begins or goes on with; raises NotUnderstoodError."""
    number = record.get("step")
    if not isinstance(number, int) or isinstance(number, bool):
        raise NotUnderstoodError("no step is named")
    if "parts" in record:
        parts = tuple(_part(raw) for raw in _items(record["parts"]))
        return Step(number, _text(record.get("name")), parts)
    if number not in known:
        raise NotUnderstoodError(f"step {number} was not begun")
    step = known[number]
    if "after" in record:
        after = tuple(None if value is None else _text(value) for value in _items(record["after"]))
        if len(after) != len(step.parts):
            raise NotUnderstoodError(f"step {number} has {len(step.parts)} parts and {len(after)} values")
        return replace(step, after=after)
    if record.get("undone") is not True:
        raise NotUnderstoodError("it says nothing")
    return step


def _part(raw: Any) -> Part:
    if not isinstance(raw, dict):
        raise NotUnderstoodError("a part is no object")
    part = Part(
        kind=_text(raw.get("kind")),
        target=_text(raw.get("target")),
        before=_text(raw.get("before")),
        wanted=_text(raw.get("wanted")),
        dependent=raw.get("dependent") is True,
    )
    if part.kind == "pool" and not part.before.isdecimal():
        raise NotUnderstoodError(f"{part.target[:80]} cannot have been {part.before[:80]!r}")
    is_file = part.kind in _FILE_KINDS and _FILE.fullmatch(part.target) and ".." not in part.target.split("/")
    if not is_file and part.kind not in _OTHER_KINDS:
        raise NotUnderstoodError(f"{part.kind} {part.target[:80]!r} is nothing that the agent sets")
    return part


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NotUnderstoodError("a list is missing")
    return value


def _text(value: Any) -> str:
    # JSON can spell halves of characters, which no file takes.
    if not isinstance(value, str) or "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise NotUnderstoodError("a text is missing")
    return value


# What was changed on this machine and how it was before, on disk before each change.
#
# One JSON object a line. The first names the boot; then comes a line before each change (`parts`), one when it was
# read back (`after`), one when it was put back (`undone`). A line that a crash cut off says nothing: the change that
# it announces was not begun.

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
