"""Hunks of a diff: their header says how many lines follow, and only these belong to them."""

import re
from dataclasses import dataclass

# Some programs write three signs; git's diffs of merges have one range more, and are no patches.
_HEADER = re.compile(r"@@@? -\d{1,18}(?:,(\d{1,18}))? \+\d{1,18}(?:,(\d{1,18}))? @@")
_MARKS = ("", " ", "+", "-", "\\")


@dataclass(frozen=True)
class Hunk:
    """`end` is the number of the first line after it."""

    insertions: int
    deletions: int
    end: int


def is_header(line: str) -> bool:
    return line.startswith("@@") and _HEADER.match(line) is not None


def empty_side(header: str) -> str:
    """`old` or `new` if a hunk says that the file had, or has, no lines; else ""."""
    found = _HEADER.match(header)
    counts = (found[1], found[2]) if found else (None, None)
    return "old" if counts[0] == "0" else "new" if counts[1] == "0" else ""


def read(lines: list[str], at: int) -> Hunk:
    """Count the hunk whose header is line `at`; it ends early at a line that no hunk can hold, or with the text."""
    found = _HEADER.match(lines[at])
    if not found:
        return Hunk(0, 0, at + 1)
    old, new = int(found[1] or "1"), int(found[2] or "1")
    if lines[at].startswith("@@@"):
        # Who wrote this header did not count the lines either.
        return _uncounted(lines, at + 1)
    insertions = deletions = 0
    at += 1
    end = len(lines)
    while at < end and (old > 0 or new > 0):
        mark = lines[at][:1]
        if mark == "+":
            insertions += 1
            new -= 1
        elif mark == "-":
            deletions += 1
            old -= 1
        elif mark == " " or not mark:
            # Programs that cut blanks off the ends of lines leave an empty line of context without its blank.
            old -= 1
            new -= 1
        elif mark != "\\":
            break
        at += 1
    return Hunk(insertions, deletions, at)


def _uncounted(lines: list[str], at: int) -> Hunk:
    """A hunk to the last line that looks like one; the dashes before a signature do not."""
    insertions = deletions = 0
    for number in range(at, len(lines)):
        line = lines[number]
        if line[:1] not in _MARKS or line.rstrip() == "--":
            return Hunk(insertions, deletions, number)
        insertions += line.startswith("+")
        deletions += line.startswith("-")
    return Hunk(insertions, deletions, len(lines))
