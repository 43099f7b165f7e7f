"""Reading the log of a build that failed: the first error with the lines around it, and what kind of end it was."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
LONGEST_EXCERPT: Final = 4000
_LONGEST_REASON = 500
_LONGEST_READ = 4 * 1024 * 1024
# Of a longer line only this much is looked at: a log may be one line of megabytes.
_LONGEST_LINE: Final = 4000
# A build that warns of all there is prints 300,000. One of empty lines would be looked at for minutes.
_MOST_LINES: Final = 1_000_000
_BEFORE, _AFTER = 6, 14

_ERRORS: Final = re.compile(
    # gcc, clang, assembler, lld, objtool: PLACE[:LINE[:COLUMN]]: error: ...
    r"(?:[^\s:][^:\n]{0,300}(?::\d+){0,2}: ?)?(?:fatal |internal compiler )?[Ee]rror: .+"
    # The GNU linker says where, not that it is an error; modpost and the link script say ERROR.
    r"|\S*ld(?:\.\w+)?(?:-\d+)?: (?!warning:).+"
    r"|.*undefined reference to .*"
    r"|(?:ERROR|LLVM ERROR|FAILED): .+"
    # Makefiles and Kconfig.
    r"|\S+:\d+: (?:\*\*\* .+|syntax error.*|missing .+|.*unexpected.*)"
    r"|\S{0,300}?Kconfig\S{0,60}:\d+: ?(?!warning:).+"
    # The shell, when a step's program is missing or was killed.
    r"|\S+: (?:line )?\d+: .+: (?:not found|command not found|Permission denied|Killed)"
)
# What make says when something else has failed: the reason only where nothing else says it.
_MAKE: Final = re.compile(r"make(?:\[\d+\])?: \*\*\* .+")
_HINTS: Final = (
    "rror",
    "***",
    "ld",
    "undefined",
    "Kconfig",
    "FAILED",
    "missing",
    "unexpected",
    "not found",
    "denied",
    "Killed",
)
_CRASHED: Final = re.compile(
    r"internal compiler error|submit a (?:full )?bug report|frontend command failed|error in backend|LLVM ERROR: "
    r"|unable to execute command: (?!Killed)|terminated by signal (?:SEGV|ABRT|BUS|ILL)"
)
_KILLED: Final = re.compile(
    r"Killed signal terminated program|unable to execute command: Killed|\bKilled\s*$|terminated with signal 9"
    r"|\bError 137\s*$",
    re.MULTILINE,
)
# What the shell and make say of any other program, such as objtool.
_BROKE: Final = re.compile(
    r"\b(?:Segmentation fault|Illegal instruction|Aborted)(?: \(core dumped\))?\s*$|\bError 13[24569]\s*$"
    # Of the linker, by collect2.
    r"|terminated with signal (?:4|6|7|8|11)\b",
    re.MULTILINE,
)
_LOCATED: Final = re.compile(r"[^\s:]+:\d+")
# On one line: a log may be megabytes of beginnings that nothing ends.
_TARGET: Final = re.compile(
    r"^make(?:\[\d{1,9}\])?: \*\*\* \[(?:[^\s:]{1,300}:\d{1,9}: )?([^\]\n]{1,300})\]", re.MULTILINE
)
# What programs say that lack disk, memory, processes or open files, which all on a host share. "make: gcc: Resource
# temporarily unavailable" stands before an Error 127; dash says of a full disk what others say of a broken one; a full
# disk below a mapped file is a SIGBUS.
_SHORT: Final = re.compile(
    r"No space left on device|[Dd]isk quota exceeded|I/O error|Input/output error|Bus error"
    r"|virtual memory exhausted|[Oo]ut of memory|memory exhausted|[Nn]ot enough memory|\bMemoryError\b"
    r"|Cannot allocate memory|std::bad_alloc"
    r"|[Cc]an(?:no|')t fork|Resource temporarily unavailable|Too many open files in system"
)
# A compiler's excerpt of the source may have such words as well.
_SOURCE: Final = re.compile(r"[ \d]*\|")
_ENDED: Final = re.compile(r"\b(?:Terminated|Interrupt|Hangup)(?: signal terminated program \S+)?\s*$", re.MULTILINE)


class Ending(Enum):
    """What a log says about the way a step ended; its words alone prove nothing, a patch can print them."""

    ERROR = "error"
    COMPILER_CRASH = "compiler crash"
    KILLED = "killed"


@dataclass(frozen=True)
class Failure:
    """`line` is the first error, "" if none looks so; `excerpt` that line with those around it."""

    line: str = ""
    excerpt: str = ""
    ending: Ending = Ending.ERROR


def find_failure(lines: Iterable[str], *, prefixes: tuple[str, ...] = ()) -> Failure:
    """The first error in a log, with source paths relative to the tree. Reads no further than it needs."""
    before: deque[str] = deque(maxlen=_BEFORE)
    fallback = Failure()
    rest = iter(lines)
    for raw in rest:
        line = _relative(raw, prefixes)
        hinted = any(hint in line for hint in _HINTS)
        if hinted and _ERRORS.match(line) and not _MAKE.match(line):
            after = [_relative(following, prefixes) for _, following in zip(range(_AFTER), rest, strict=False)]
            return _failure(line, [*before, line, *after])
        if hinted and not fallback.line and _MAKE.match(line):
            fallback = _failure(line, [*before, line])
        before.append(line)
    return fallback


def first_error(log: str, *, prefixes: tuple[str, ...] = ()) -> str:
    """The line that says why a build failed, with source paths relative to the tree; "" if none looks so."""
    return find_failure(log.split("\n"), prefixes=prefixes).line


def failure_of_file(path: Path, *, start: int = 0, prefixes: tuple[str, ...] = ()) -> Failure:
    """The first error in a log of any size, from byte `start` on."""
    return find_failure(_lines(path, start), prefixes=prefixes)


def read_log(path: Path) -> str:
    """The last megabytes of a log as text."""
    return log_since(path, 0)


def log_since(path: Path, start: int) -> str:
    """What a log has from byte `start` on, of that the last megabytes, as text."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(start if start <= size else 0, size - _LONGEST_READ))
        return stream.read().decode("utf-8", errors="replace").replace("\0", "")


def log_tail(log: str) -> str:
    """The last 200 lines, 64 KB at most, cut between characters."""
    tail = "\n".join(log.splitlines()[-TAIL_LINES:])
    return tail.encode()[-TAIL_BYTES:].decode("utf-8", errors="ignore")


def says_ended(log: str) -> bool:
    """Whether a program of the step says that another one was told to end by a signal: make, the shell, gcc."""
    return _ENDED.search(log) is not None


def says_killed(log: str) -> bool:
    """Whether a program of the step says that another one was killed: by the kernel, a guard of memory, a person."""
    return _KILLED.search(log) is not None


def says_crashed(log: str) -> bool:
    """Whether the compiler or another program of the step crashed: by a fault of its own, or of the host's memory."""
    return _CRASHED.search(log) is not None or _BROKE.search(log) is not None


def place_of(failure: Failure, log: str) -> str:
    """Where a step failed: the line of the first error that names a place, else what make was to make, "" if neither.

    Drivers of compilers say that a program crashed, and not of what.
    """
    if _LOCATED.match(failure.line):
        return failure.line
    found = _TARGET.search(log)
    return found[1] if found else ""


def says_short(log: str) -> bool:
    """Whether a program of the step lacked something that others on this host can take."""
    return any(_SHORT.search(line) and not _SOURCE.match(line) for line in log.splitlines())


def _lines(path: Path, start: int) -> Iterator[str]:
    with path.open("rb") as stream:
        # A log that was cut short meanwhile is read as a whole.
        stream.seek(start if start <= path.stat().st_size else 0)
        for _ in range(_MOST_LINES):
            line = stream.readline(_LONGEST_LINE)
            if not line:
                return
            yield line.decode("utf-8", errors="replace").replace("\0", "").rstrip("\r\n")


def _relative(line: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        line = line.replace(prefix.rstrip("/") + "/", "")
    return line[:_LONGEST_LINE]


def _failure(line: str, around: list[str]) -> Failure:
    text = "\n".join(around)
    ending = Ending.KILLED if _KILLED.search(text) else Ending.COMPILER_CRASH if _CRASHED.search(text) else Ending.ERROR
    return Failure(line.strip()[:_LONGEST_REASON], _fitting(around, around.index(line)), ending)


def _fitting(lines: list[str], center: int) -> str:
    """As many whole lines around the one that counts as fit."""
    first, last = center, center + 1
    size = len(lines[center])
    while first > 0 or last < len(lines):
        grown = False
        if last < len(lines) and size + len(lines[last]) < LONGEST_EXCERPT:
            size += len(lines[last]) + 1
            last += 1
            grown = True
        if first > 0 and size + len(lines[first - 1]) < LONGEST_EXCERPT:
            first -= 1
            size += len(lines[first]) + 1
            grown = True
        if not grown:
            break
    return "\n".join(lines[first:last])[:LONGEST_EXCERPT]
