"""Reading /proc and /sys: of this system, of a recorded copy, or of texts that came over a console."""

import os
import stat
from collections.abc import Iterator, Mapping
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
