"""/proc and /sys as values, of this system or of a recorded one."""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# Enough for every small file, and for CPU lists of the largest machines; what is longer is cut.
SMALL = 64 * 1024
# /proc/cpuinfo has 1 to 2 kB for each CPU, and the kernel knows at most 8192 of them.
LARGE = 16 * 1024 * 1024
# A directory with more entries is no machine's; the rest is not looked at.
MOST_NAMES = 20_000
_LOG = "dev/kmsg"


class Tree(Protocol):
    """Files by their path without the leading slash. What cannot be read is empty, whatever the reason."""

    def data(self, path: str, limit: int = SMALL) -> bytes:
        """At most `limit` first bytes of a regular file."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """The sorted names in a directory."""
        ...


@dataclass(frozen=True)
class Directory:
    """The files below `root`. A link that leads out of it, and whatever is no regular file, counts as missing."""

    root: Path

    def data(self, path: str, limit: int = SMALL) -> bytes:
        taken = bytearray()
        # A file in /sys may fail in the middle: what was read before is kept.
        with suppress(OSError), self._opened(path) as descriptor:
            while len(taken) < limit and (chunk := os.read(descriptor, min(SMALL, limit - len(taken)))):
                taken += chunk
        return bytes(taken)

    def names(self, path: str) -> tuple[str, ...]:
        found = []
        with suppress(OSError, ValueError), os.scandir(self._inside(path)) as entries:
            for entry in entries:
                found.append(entry.name)
                if len(found) >= MOST_NAMES:
                    break
        return tuple(sorted(found))

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """A descriptor that never waits, not even for the other end of a pipe."""
        try:
            whole = self._inside(path)
        except ValueError as error:
            raise OSError(str(error)) from error
        mode = Path(whole).stat().st_mode
        # Looked at first, for opening a device may have effects. The kernel's log is the only one that is read.
        if not stat.S_ISREG(mode) and not (stat.S_ISCHR(mode) and path == _LOG):
            raise OSError(f"{path} is no file")
        descriptor = os.open(whole, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _inside(self, path: str) -> str:
        root = os.path.realpath(self.root)
        if root == "/":
            # Nothing is outside, and the system's own links lead where they should.
            return f"/{path}"
        whole = os.path.realpath(os.path.join(root, path), strict=True)  # noqa: PTH118 (ten times as fast as Path)
        if os.path.commonpath((root, whole)) != root:
            raise OSError(f"{path} leads out of {root}")
        return whole


@dataclass(frozen=True)
class Texts:
    """A tree in memory, by path."""

    files: Mapping[str, str | bytes]

    def data(self, path: str, limit: int = SMALL) -> bytes:
        held = self.files.get(path, b"")
        return (held.encode("utf-8", "replace") if isinstance(held, str) else held)[:limit]

    def names(self, path: str) -> tuple[str, ...]:
        prefix = f"{path}/"
        inside = (name[len(prefix) :] for name in self.files if name.startswith(prefix))
        return tuple(sorted({name.split("/", 1)[0] for name in inside}))[:MOST_NAMES]


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
