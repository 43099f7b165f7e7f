"""From a console and the way the machine ended to the outcome of a boot."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_agent.assignment import KernelImage, PlannedCase
from tidemark_agent.boot.console import Console, Measurement, Note, measurements_of
from tidemark_agent.build.elf import build_id_of_notes
from tidemark_agent.probe import Facts, facts_from

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
