"""What survives a reboot: the journal of a session, and how far it came."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.system.disk import sync_directory
from tidemark_agent.wire.assignment import Assignment, PlannedBoot, SessionJob, read_assignment

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


class BriefJournal(Journal):
    """Of a session that is over with the process that has begun it."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def entries(self) -> Iterator[dict[str, Any]]:
        return iter(self._entries)

    def append(self, event: str, **fields: Any) -> dict[str, Any]:
        self._entries.append({"event": event, **fields, "at": time.time()})
        return self._entries[-1]


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


@dataclass(frozen=True)
class Armed:
    """A boot that was made ready: with which nonce, in which boot of the machine, with which old evidence around."""

    nonce: str
    boot_id: str
    known: tuple[str, ...]


@dataclass(frozen=True)
class Booted:
    """The wanted kernel reached the agent."""

    nonce: str
    boot_id: str
    at: float


@dataclass
class Progress:
    """What a journal tells. All about `armed`, `booted` and below is of the first boot without an outcome.

    `silent` counts its boots that ended without a trace, `arms` how often it was armed since, `returns` how often the
    machine went back to the safe kernel to arm it there, `begun` how often each (benchmark, case, core type) was begun
    in the present boot, `results` what they gave as CaseResult writes it.
    """

    key: str = ""
    agent: str = ""
    begun_at: float = 0.0
    safe_build_id: str = ""
    safe_command_line: str = ""
    brought_by: dict[str, Any] = field(default_factory=dict)
    assignment: Assignment | None = None
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)
    spooled: set[int] = field(default_factory=set)
    closing: tuple[str, str] | None = None
    superseded: bool = False
    leaves: int = 0
    returns: int = 0
    ended: bool = False
    armed: Armed | None = None
    armed_at: float = 0.0
    arms: int = 0
    silent: int = 0
    booted: Booted | None = None
    ever_booted: bool = False
    begun: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def job(self) -> SessionJob:
        if self.assignment is None or not isinstance(self.assignment.job, SessionJob):
            raise JournalError("the journal has no assignment of a session")
        return self.assignment.job

    def next_boot(self) -> PlannedBoot | None:
        """The first planned boot that has no outcome yet."""
        return next((boot for boot in self.job.boots if boot.position not in self.outcomes), None)


def progress_of(entries: Iterable[Mapping[str, Any]]) -> Progress:
    """Read the entries in their order; raises JournalError for one that makes no sense."""
    progress = Progress()
    for entry in entries:
        reader = _READERS.get(entry["event"])
        if reader is None:
            raise JournalError(f"the journal has an entry nobody knows: {entry['event']!r}")
        try:
            reader(progress, entry)
        except (KeyError, TypeError, ValueError, AttributeError, InfrastructureError) as error:
            raise JournalError(f"the journal's entry {entry['event']} makes no sense: {error!r}") from error
    return progress


def _begun(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.key, progress.agent = str(entry["key"]), str(entry["agent"])
    progress.safe_build_id, progress.begun_at = str(entry["build_id"]), float(entry["at"])
    progress.safe_command_line = str(entry.get("command_line", ""))
    progress.brought_by = dict(entry.get("brought_by", {}))


def _claimed(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.assignment = read_assignment(entry["assignment"])


def _armed(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.armed = Armed(str(entry["nonce"]), str(entry["boot_id"]), tuple(entry["known"]))
    progress.armed_at = float(entry["at"])
    progress.arms += 1
    _forget_boot(progress)


def _booted(progress: Progress, entry: Mapping[str, Any]) -> None:
    _forget_boot(progress)
    progress.booted = Booted(str(entry["nonce"]), str(entry["boot_id"]), float(entry["at"]))
    progress.ever_booted = True


def _prepared(_progress: Progress, _entry: Mapping[str, Any]) -> None:
    """For people: the next agent of this boot prepares the machine anew."""


def _case_begun(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.begun[str(entry["benchmark"]), str(entry["case"]), str(entry["core_type"])] += 1


def _case(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.results.append(dict(entry["result"]))


def _silent(progress: Progress, _entry: Mapping[str, Any]) -> None:
    progress.silent += 1
    progress.armed, progress.arms = None, 0
    _forget_boot(progress)


def _outcome(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.outcomes[int(entry["position"])] = dict(entry["body"])
    progress.armed, progress.arms, progress.silent, progress.returns = None, 0, 0, 0
    progress.ever_booted = False
    _forget_boot(progress)


def _spooled(progress: Progress, entry: Mapping[str, Any]) -> None:
    position = int(entry["position"])
    progress.spooled.add(position)
    # The body waits in the spool now; here only how it ended is still of use.
    body = progress.outcomes[position]
    progress.outcomes[position] = {name: body[name] for name in ("outcome", "reason")}


def _closing(progress: Progress, entry: Mapping[str, Any]) -> None:
    progress.closing = str(entry["outcome"]), str(entry["reason"])
    progress.superseded = bool(entry["superseded"])


def _leaving(progress: Progress, _entry: Mapping[str, Any]) -> None:
    progress.leaves += 1


def _returning(progress: Progress, _entry: Mapping[str, Any]) -> None:
    progress.returns += 1
    progress.armed = None
    _forget_boot(progress)


def _ended(progress: Progress, _entry: Mapping[str, Any]) -> None:
    progress.ended = True


def _forget_boot(progress: Progress) -> None:
    progress.booted = None
    progress.begun, progress.results = Counter(), []


_READERS: Mapping[str, Callable[[Progress, Mapping[str, Any]], None]] = {
    "begun": _begun,
    "claimed": _claimed,
    "armed": _armed,
    "booted": _booted,
    "prepared": _prepared,
    "case-begun": _case_begun,
    "case": _case,
    "silent": _silent,
    "outcome": _outcome,
    "spooled": _spooled,
    "closing": _closing,
    "leaving": _leaving,
    "returning": _returning,
    "ended": _ended,
}
