"""One change of the machine as the journal tells it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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
