"""Reading the log of a build that failed."""

import re
from pathlib import Path

TAIL_LINES = 200
TAIL_BYTES = 64 * 1024
_LONGEST_REASON = 500
_LONGEST_READ = 4 * 1024 * 1024

_PATTERNS = (
    # gcc and clang: FILE:LINE:COLUMN: error: ...
    re.compile(r"^\S+:\d+(?::\d+)?: (?:fatal )?error: .+", re.MULTILINE),
    # The assembler.
    re.compile(r"^\S+:\d+: Error: .+", re.MULTILINE),
    # The linker and modpost.
    re.compile(r"^(?:\S*ld: .*|.*undefined reference to .*|ERROR: modpost: .*|ERROR: .*)", re.MULTILINE),
    # Makefiles and Kconfig.
    re.compile(
        r"^\S+:\d+: (?:\*\*\* .+|syntax error.*|missing .+|recursive dependency.*|.*unexpected.*)", re.MULTILINE
    ),
    re.compile(r"^make(?:\[\d+\])?: \*\*\* .+", re.MULTILINE),
)


def first_error(log: str, *, prefixes: tuple[str, ...] = ()) -> str:
    """The line that says why a build failed, with source paths relative to the tree; "" if none looks so."""
    for pattern in _PATTERNS:
        if match := pattern.search(log):
            line = match[0].strip()
            for prefix in prefixes:
                line = line.replace(prefix.rstrip("/") + "/", "")
            return line[:_LONGEST_REASON]
    return ""


def read_log(path: Path) -> str:
    """The last megabytes of a log as text."""
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - _LONGEST_READ))
        return stream.read().decode("utf-8", errors="replace").replace("\0", "")


def log_tail(log: str) -> str:
    """The last 200 lines, 64 KB at most, cut between characters."""
    tail = "\n".join(log.splitlines()[-TAIL_LINES:])
    return tail.encode()[-TAIL_BYTES:].decode("utf-8", errors="ignore")


def says_disk_full(log: str) -> bool:
    return "No space left on device" in log or "Disk quota exceeded" in log
