"""Reading what a booted machine showed on its serial console.

The console is shared: emulator escape sequences, carriage returns, kernel messages in the middle of a line. Only
whole sections between two marker lines with this boot's nonce count, and in them only values that make sense.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidemark_agent.assignment import PlannedCase

TAIL_BYTES = 8 * 1024
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_a-z])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PANIC = re.compile(r"Kernel panic - not syncing.*")
_PRINTK = re.compile(r"\[ *\d+\.\d{6}\] ")
_LONGEST_REASON = 300
# `timeout -s KILL` of busybox ends so when it killed the program.
_KILLED = 137


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
        panic=panic[0].strip()[:_LONGEST_REASON] if panic else "",
        tail=text.encode()[-TAIL_BYTES:].decode("utf-8", errors="ignore"),
    )


def clean_text(raw: bytes) -> str:
    """Console bytes as text: without escape sequences, carriage returns and other control characters."""
    text = raw.decode("utf-8", errors="replace")
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def measurements_of(console: Console, cases: Sequence[PlannedCase]) -> tuple[list[Measurement], list[Note]]:
    """What each planned case gave: all its metrics with all their values, or a note that says why not."""
    measured: list[Measurement] = []
    notes: list[Note] = []
    for number, case in enumerate(cases):
        name = f"case-{number}"
        section = console.sections.get(name)
        if section is None:
            reason = "did not come to its end" if name in console.begun else "was not reached"
            notes.append(Note(case.benchmark, case.case, "missing", reason))
            continue
        found = _values(section.lines, case)
        problem = _problem(section, found, case)
        if problem is None:
            measured += [
                Measurement(case.benchmark, case.version, case.case, metric, tuple(values), case.warmup)
                for metric, values in found.items()
            ]
        else:
            notes.append(problem)
    return measured, notes


def _problem(section: Section, found: Mapping[str, list[float]], case: PlannedCase) -> Note | None:
    if section.status == _KILLED:
        return Note(case.benchmark, case.case, "timeout", f"ran longer than {case.timeout_seconds} s")
    if section.status != 0:
        said = _error_text(section.lines) or section.text[-_LONGEST_REASON:]
        return Note(case.benchmark, case.case, "failed", f"exit status {section.status}: {said}".rstrip(": "))
    for metric in case.metrics:
        count = len(found[metric])
        if count != case.runs:
            reason = f"garbled output: {count} good values of {metric}, {case.runs} wanted"
            return Note(case.benchmark, case.case, "garbled", reason)
    return None


def _values(lines: Sequence[str], case: PlannedCase) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {metric: [] for metric in case.metrics}
    for line in lines:
        record = _json_line(line)
        metric, value = record.get("metric"), record.get("value")
        if record.get("case") == case.case and isinstance(metric, str) and metric in found and _is_sane(value):
            found[metric].append(float(value))  # type: ignore[arg-type]  # _is_sane has looked
    return found


def _is_sane(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value) and value > 0 and math.isfinite(float(value))
    except OverflowError:
        return False


def _error_text(lines: Sequence[str]) -> str:
    for line in lines:
        error = _json_line(line).get("error")
        if isinstance(error, str):
            # JSON can spell what the console itself cannot show.
            return clean_text(error.encode("utf-8", errors="replace"))[:_LONGEST_REASON]
    return ""


def _json_line(line: str) -> dict[str, object]:
    """The JSON object on a line, with a kernel message before or after it cut off; {} if there is none."""
    start, end = line.find("{"), line.rfind("}")
    if start < 0 or end < start or _PRINTK.search(line[start:end]):
        return {}
    try:
        record = json.loads(line[start : end + 1])
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
