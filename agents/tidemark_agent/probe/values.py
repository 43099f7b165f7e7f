"""Values in files, as they can be trusted: short clean texts, numbers of sane size, CPU lists."""

import re
from collections.abc import Iterable

from tidemark_agent.probe.tree import SMALL, Tree

# The kernel's largest NR_CPUS; numbers beyond are somebody's mistake.
MOST_CPUS = 8192
# No fact needs a longer text: a kernel's command line has 4096 bytes at most.
LONGEST = 4096
# The longest number in such files has 64 bits.
_NUMBER = re.compile(r"\d{1,20}")
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?(?::\d{1,6}/\d{1,6})?")


def clean(text: str) -> str:
    """One line of printable characters, of bounded length: it goes to consoles, JSON and a database."""
    short = text[:LONGEST]
    return short.strip() if short.isprintable() else " ".join(_words(short))


def _words(text: str) -> list[str]:
    return "".join(letter if letter.isprintable() else " " for letter in text).split()


def raw_text(tree: Tree, path: str, limit: int = SMALL) -> str:
    """The whole file as text; bytes that are none are replaced."""
    return tree.data(path, limit).decode("utf-8", "replace")


def text(tree: Tree, path: str) -> str:
    """A file of one line as clean text."""
    return clean(raw_text(tree, path))


def number(tree: Tree, path: str) -> int | None:
    """A file that holds one decimal number; None if it does not."""
    return as_number(text(tree, path))


def as_number(told: str) -> int | None:
    return int(told) if _NUMBER.fullmatch(told) and told.isascii() else None


def as_cpus(told: str) -> frozenset[int]:
    """The CPUs (or nodes) of a list such as 0-3,8; what is no such list has none."""
    found: set[int] = set()
    for word in told.strip().split(",")[:MOST_CPUS]:
        match = _RANGE.fullmatch(word.strip())
        if match is None or not match[0].isascii():
            return frozenset()
        first, last = int(match[1]), int(match[2] or match[1])
        found.update(range(first, min(last + 1, MOST_CPUS)))
    return frozenset(cpu for cpu in found if cpu < MOST_CPUS)


def cpu_list(cpus: Iterable[int]) -> str:
    """CPUs as the kernel lists them: 0-3,8."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def numbered(tree: Tree, path: str, prefix: str) -> tuple[int, ...]:
    """The numbers N of all entries PREFIX + N in a directory, in order: cpu0, cpu1 ..."""
    pattern = re.compile(rf"{re.escape(prefix)}(\d{{1,9}})", re.ASCII)
    found = (pattern.fullmatch(name) for name in tree.names(path))
    return tuple(sorted({int(match[1]) for match in found if match}))
