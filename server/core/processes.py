"""Bounds of processes: of this one its memory, and child processes whose words are not trusted, memory and time."""

import contextlib
import os
import resource
import selectors
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

_CHUNK = 65536


class TooMuchOutputError(Exception):
    """The process printed more than its caller wants to hold."""


@dataclass(frozen=True)
class Limits:
    """What one process and each of its helpers may take: bytes of a file it writes, bytes of memory of its own.

    Mapped files do not count as memory, or a repository with large packs could not be read at all.
    """

    file_bytes: int
    memory_bytes: int

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command (of util-linux) that sets the limits and becomes the program named after it."""
        return ("prlimit", f"--fsize={self.file_bytes}", f"--data={self.memory_bytes}", "--")


def bound_memory(most_mb: int) -> None:
    """Let this process have no more private, writable memory than that: who wants more of it has a MemoryError.

    The bound is the soft one: a program that it starts may be given another (`Limits`, `unbound`).
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = most_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def unbound() -> tuple[str, ...]:
    """The command that becomes the program named after it, which `bound_memory` does not bind."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    return ("prlimit", f"--data={'unlimited' if hard == resource.RLIM_INFINITY else hard}", "--")


def exchange(
    process: "subprocess.Popen[bytes]", stdin: bytes, *, timeout: float | None, most_output: int, tail: int
) -> tuple[bytes, bytes]:
    """Feed `stdin` and read both outputs to the end of the process: all of stdout, the last `tail` bytes of stderr.

    Raises subprocess.TimeoutExpired after `timeout` seconds and TooMuchOutputError above `most_output` bytes; the
    process still runs then.
    """
    end = None if timeout is None else time.monotonic() + timeout
    assert process.stdin
    assert process.stdout
    assert process.stderr
    out, err = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, out)
        selector.register(process.stderr, selectors.EVENT_READ, err)
        waiting = memoryview(stdin)
        if waiting:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            _close(process.stdin)
        while selector.get_map():
            for key, _ in selector.select(_left(process, end, timeout)):
                if key.fileobj is process.stdin:
                    waiting = _write(process.stdin, waiting)
                    if not waiting:
                        selector.unregister(process.stdin)
                        _close(process.stdin)
                elif not _read(key.fd, key.data):
                    selector.unregister(key.fileobj)
            if len(out) > most_output:
                raise TooMuchOutputError
            del err[:-tail]
    process.wait(_left(process, end, timeout))
    return bytes(out), bytes(err)


def pieces(process: "subprocess.Popen[bytes]", *, seconds: float) -> Iterator[bytes]:
    """What `process` prints, cut at NULs, as it comes; raises subprocess.TimeoutExpired after `seconds`."""
    end = time.monotonic() + seconds
    assert process.stdout
    descriptor, rest = process.stdout.fileno(), b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(_left(process, end, seconds)):
                continue
            part = os.read(descriptor, _CHUNK)
            if not part:
                break
            *whole, rest = (rest + part).split(b"\0")
            yield from whole
    if rest:
        yield rest


def _left(process: "subprocess.Popen[bytes]", end: float | None, timeout: float | None) -> float | None:
    if end is None:
        return None
    left = end - time.monotonic()
    if left <= 0:
        raise subprocess.TimeoutExpired(process.args, timeout or 0.0)
    return left


def _read(descriptor: int, into: bytearray) -> bool:
    part = os.read(descriptor, _CHUNK)
    into += part
    return bool(part)


def _write(pipe: "IO[bytes]", waiting: memoryview) -> memoryview:
    """What is left to write; nothing when the process does not listen any more."""
    try:
        return waiting[os.write(pipe.fileno(), waiting[:_CHUNK]) :]
    except BlockingIOError:
        return waiting
    except BrokenPipeError:
        return waiting[:0]


def _close(pipe: "IO[bytes]") -> None:
    with contextlib.suppress(BrokenPipeError):
        pipe.close()
