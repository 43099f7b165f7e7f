"""What the console of a guest tells: measurements, notes, and the verdict of a boot."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark_agent.probe import Facts, facts_from
from tidemark_agent.system.elf import build_id_of_notes
from tidemark_agent.system.text import LONGEST_REASON, clean_text, count_problem, error_text, json_values, last_bytes
from tidemark_agent.wire.assignment import KernelImage, PlannedCase

# Reading what a booted machine showed on its serial console.
#
# The console is shared: emulator escape sequences, carriage returns, kernel messages in the middle of a line. Only
# whole sections between two marker lines with this boot's nonce count, and in them only values that make sense.

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


def read_console(raw: bytes, nonce: str) -> Console:
    text = clean_text(raw)
    sections, begun = _sections(text, nonce)
    panic = _PANIC.search(text)
    return Console(
        sections=sections,
        begun=begun,
        panic=panic[0].strip()[:LONGEST_REASON] if panic else "",
        tail=last_bytes(text, TAIL_BYTES),
    )


def _sections(text: str, nonce: str) -> tuple[dict[str, Section], frozenset[str]]:
    """Those that came to their end, and the names of all that began. Only lines inside of them are looked at.

    A guest may print nothing but ends of lines, tens of millions.
    """
    marker = re.compile(rf"@@{re.escape(nonce)} (?P<what>begin|end) (?P<name>[\w-]+)(?: (?P<status>\d{{1,3}})\b)?")
    sections: dict[str, Section] = {}
    begun: set[str] = set()
    name, first, position = "", 0, 0
    while match := marker.search(text, position):
        position = text.find("\n", match.end()) + 1 or len(text)
        if match["what"] == "begin":
            name, first = match["name"], position
            begun.add(name)
        else:
            if match["name"] == name and match["status"]:
                lines = text[first : text.rfind("\n", 0, match.start()) + 1].split("\n")[:-1]
                sections[name] = Section(tuple(lines), int(match["status"]))
            name = ""
    return sections, frozenset(begun)


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


_BOOT_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEX = re.compile(r"(?:[0-9a-f]{2})+")


@dataclass(frozen=True)
class Verdict:
    """What the console proves about a boot."""

    outcome: str
    reason: str
    boot_id: str = ""
    build_id: str = ""
    facts: Facts | None = None
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[Note, ...] = ()


def judge_boot(
    console: Console, *, kernel: KernelImage, cases: Sequence[PlannedCase], timed_out: bool, hypervisor: str, clock: str
) -> Verdict:
    """Sort a boot that the emulator itself carried to its end (or to the time limit)."""
    facts = _facts(console, hypervisor, clock)
    boot_id, build_id = _boot_id(console), _build_id(console)
    if "hello" not in console.begun:
        return Verdict(*_without_user_space(console, timed_out=timed_out), facts=None)
    measurements, notes = measurements_of(console, cases)
    outcome, reason = _outcome(
        console, kernel, boot_id=boot_id, build_id=build_id, timed_out=timed_out, notes=None if measurements else notes
    )
    if outcome != "measured":
        return Verdict(outcome, reason, boot_id, build_id, facts, notes=tuple(notes))
    return Verdict(outcome, reason, boot_id, build_id, facts, tuple(measurements), tuple(notes))


def _without_user_space(console: Console, *, timed_out: bool) -> tuple[str, str]:
    if console.panic:
        return "panic", console.panic
    how = "nothing was heard of user space in time" if timed_out else "the machine ended before user space"
    return "no-boot", how


def _outcome(  # noqa: PLR0911 (a list of cases, the first that fits)
    console: Console,
    kernel: KernelImage,
    *,
    boot_id: str,
    build_id: str,
    timed_out: bool,
    notes: Sequence[Note] | None,
) -> tuple[str, str]:
    """`notes` are those of all cases when none gave a measurement, else None."""
    if console.panic:
        return "panic", console.panic
    if build_id and build_id != kernel.build_id:
        return "wrong-kernel", f"build id {build_id} is running, {kernel.build_id} was wanted"
    if timed_out:
        return "timeout", "the boot did not end in time"
    if not console.finished:
        return "panic", "the machine was reset before the last case was over"
    if not build_id:
        return "wrong-kernel", "the kernel showed no build id"
    if not boot_id:
        return "wrong-kernel", "the kernel showed no boot id"
    if notes is not None:
        is_late = bool(notes) and all(note.outcome == "timeout" for note in notes)
        return "timeout" if is_late else "infrastructure", "no case gave a measurement"
    return "measured", ""


def _facts(console: Console, hypervisor: str, clock: str) -> Facts | None:
    cpuinfo = console.text("cpuinfo")
    if not cpuinfo:
        return None
    return facts_from(
        cpuinfo=cpuinfo,
        meminfo=console.text("memory"),
        cmdline=console.text("cmdline"),
        release=console.text("release"),
        online=console.text("online"),
        hypervisor=hypervisor,
        clock=clock,
    )


def _boot_id(console: Console) -> str:
    found = _BOOT_ID.search(console.text("boot_id"))
    return found[0] if found else ""


def _build_id(console: Console) -> str:
    """The build id in the hexadecimal dump of the kernel's notes, padded with blanks where the last line ends early.

    Lines with anything else in them are no part of it: a kernel message has hexadecimal digits, too.
    """
    section = console.sections.get("notes")
    if section is None or section.status != 0:
        return ""
    lines = (line.strip() for line in section.lines)
    return build_id_of_notes(bytes.fromhex("".join(line for line in lines if _HEX.fullmatch(line))))
