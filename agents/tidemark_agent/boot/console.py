"""Reading what a booted machine showed on its serial console.

The console is shared: emulator escape sequences, carriage returns, kernel messages in the middle of a line. Only
whole sections between two marker lines with this boot's nonce count, and in them only values that make sense.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_agent.assignment import PlannedCase
from tidemark_agent.cases.output import LONGEST_REASON, count_problem, error_text, json_values
from tidemark_agent.text import clean_text, last_bytes

TAIL_BYTES = 8 * 1024
_PANIC = re.compile(r"Kernel panic - not syncing.*")
# The init program says so when it killed the case, and when the kernel did.
_KILLED = 137
_OOM_KILLS = re.compile(r"oom_kill (\d{1,18})", re.ASCII)


@dataclass(frozen=True)
class Section:
    """The lines that one command printed, and its exit status."""

    lines: tuple[str, ...]
    status: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip()


@dataclass(frozen=True)
class Console:
    """What a boot showed: the sections that came to their end, which ones began, and a panic if there was one."""

    sections: Mapping[str, Section]
    begun: frozenset[str]
    panic: str
    tail: str

    def text(self, name: str) -> str:
        section = self.sections.get(name)
        return section.text if section else ""

    @property
    def finished(self) -> bool:
        return "bye" in self.sections


@dataclass(frozen=True)
class Measurement:
    benchmark: str
    version: str
    case: str
    metric: str
    values: tuple[float, ...]
    warmup: int


@dataclass(frozen=True)
class Note:
    """A case that gave no measurement, and why."""

    benchmark: str
    case: str
    outcome: str
    reason: str


@dataclass
class _Reader:
    """Collects sections while lines go by."""

    marker: re.Pattern[str]
    sections: dict[str, Section] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    name: str = ""
    lines: list[str] = field(default_factory=list)

    def read(self, line: str) -> None:
        match = self.marker.search(line)
        if match is None:
            if self.name:
                self.lines.append(line)
        elif match["what"] == "begin":
            self.name, self.lines = match["name"], []
            self.begun.add(self.name)
        else:
            if match["name"] == self.name and match["status"]:
                self.sections[self.name] = Section(tuple(self.lines), int(match["status"]))
            self.name = ""


def read_console(raw: bytes, nonce: str) -> Console:
    text = clean_text(raw)
    reader = _Reader(
        re.compile(rf"@@{re.escape(nonce)} (?P<what>begin|end) (?P<name>[\w-]+)(?: (?P<status>\d{{1,3}})\b)?")
    )
    for line in text.split("\n"):
        reader.read(line)
    panic = _PANIC.search(text)
    return Console(
        sections=reader.sections,
        begun=frozenset(reader.begun),
        panic=panic[0].strip()[:LONGEST_REASON] if panic else "",
        tail=last_bytes(text, TAIL_BYTES),
    )


def measurements_of(console: Console, cases: Sequence[PlannedCase]) -> tuple[list[Measurement], list[Note]]:
    """What each planned case gave: all its metrics with all their values, or a note that says why not."""
    measured: list[Measurement] = []
    notes: list[Note] = []
    oom_kills = 0
    for number, case in enumerate(cases):
        name = f"case-{number}"
        section = console.sections.get(name)
        if section is None:
            reason = "did not come to its end" if name in console.begun else "was not reached"
            notes.append(Note(case.benchmark, case.case, "missing", reason))
            continue
        before, oom_kills = oom_kills, max(oom_kills, _oom_kills(console, number))
        found = json_values(section.lines, case.case, case.metrics)
        problem = _problem(section, found, case, oom_kills=oom_kills - before)
        if problem is None:
            measured += [
                Measurement(case.benchmark, case.version, case.case, metric, tuple(values), case.warmup)
                for metric, values in found.items()
            ]
        else:
            notes.append(problem)
    return measured, notes


def _oom_kills(console: Console, number: int) -> int:
    """How many processes the kernel had killed for want of memory by the end of a case that was killed."""
    found = _OOM_KILLS.search(console.text(f"oom-{number}"))
    return int(found[1]) if found else 0


def _problem(section: Section, found: Mapping[str, list[float]], case: PlannedCase, *, oom_kills: int) -> Note | None:
    if section.status == _KILLED and oom_kills:
        reason = f"memory ran out: processes killed by the kernel: {oom_kills}"
        return Note(case.benchmark, case.case, "oom", reason)
    if section.status == _KILLED:
        return Note(case.benchmark, case.case, "timeout", f"ran longer than {case.timeout_seconds} s")
    if section.status != 0:
        said = error_text(section.lines) or section.text[-LONGEST_REASON:]
        return Note(case.benchmark, case.case, "failed", f"exit status {section.status}: {said}".rstrip(": "))
    problem = count_problem(found, case.metrics, case.runs)
    return Note(case.benchmark, case.case, "garbled", problem) if problem else None
