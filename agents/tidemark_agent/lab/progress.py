"""Where a session stands: what its journal says, read once from the first line to the last."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark_agent.assignment import Assignment, PlannedBoot, SessionJob, read_assignment
from tidemark_agent.errors import InfrastructureError
from tidemark_agent.lab.journal import JournalError


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
