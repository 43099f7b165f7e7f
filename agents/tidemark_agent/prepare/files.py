"""Reading and writing the kernel's small files below any root."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

# The longest file that is read whole is /proc/stat or /proc/swaps on a big machine.
_MOST_BYTES = 1 << 20
# A file that is busy (a CPU is just coming or going, a governor is being changed) is free again soon.
_TRIES = 4
_PAUSE_SECONDS = 0.05
_FOR_A_MOMENT = {errno.EBUSY, errno.EAGAIN, errno.EINTR}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}
_MEANINGS = {
    errno.EACCES: "not permitted: the agent must be root",
    errno.EPERM: "not permitted by the kernel",
    errno.EROFS: "mounted read-only, as in a container",
    errno.EBUSY: "busy",
    errno.EINVAL: "the kernel does not take this value",
    errno.ENODEV: "its device is gone or offline",
    errno.ENXIO: "its device is gone or offline",
    errno.EIO: "the kernel cannot do it",
    errno.EOPNOTSUPP: "not supported by this hardware",
    errno.ENOENT: "it does not exist any more",
    errno.ENOMEM: "not enough memory",
    errno.ENOSPC: "no room for it: a CPU set would have no CPU or memory left",
}


class SettingError(Exception):
    """One value could not be read or written; the message says what and why."""


class KernelFiles:
    """Files below `root`, named by paths relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, target: str) -> str | None:
        """The text without white space around it; None if there is no such file; raises SettingError."""
        for left in reversed(range(_TRIES)):
            try:
                with (self.root / target).open("rb") as stream:
                    return stream.read(_MOST_BYTES).decode("utf-8", "replace").strip()
            except OSError as error:
                if error.errno in _ABSENT:
                    return None
                if error.errno not in _FOR_A_MOMENT or not left:
                    raise SettingError(f"/{target} cannot be read: {meaning(error)}") from error
            time.sleep(_PAUSE_SECONDS)
        return None

    def text(self, target: str) -> str:
        """What is there, "" when it cannot be read: for what is only reported."""
        try:
            return self.read(target) or ""
        except SettingError:
            return ""

    def write(self, target: str, value: str) -> None:
        """Write in one piece, as the kernel wants it; raises SettingError and makes no file that is not there."""
        for left in reversed(range(_TRIES)):
            try:
                self._write(target, value)
            except OSError as error:
                if error.errno not in _FOR_A_MOMENT or not left:
                    raise SettingError(f"/{target} does not take {value!r}: {meaning(error)}") from error
            else:
                return
            time.sleep(_PAUSE_SECONDS)

    def names(self, directory: str, pattern: str) -> Iterator[str]:
        """Relative paths below `directory` that match, in the order of their names; none if it is not there."""
        try:
            found = sorted((self.root / directory).glob(pattern), key=lambda path: (len(str(path)), str(path)))
        except OSError:
            return
        for path in found:
            yield str(path.relative_to(self.root))

    def _write(self, target: str, value: str) -> None:
        descriptor = os.open(self.root / target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{value}\n".encode())
        finally:
            os.close(descriptor)


def meaning(error: OSError) -> str:
    """What the kernel's refusal means, with its own name for it."""
    name = errno.errorcode.get(error.errno or 0, "error")
    return f"{_MEANINGS.get(error.errno or 0, error.strerror or 'failed')} ({name})"
