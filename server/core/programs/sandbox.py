"""Bounds and walls for programs whose words are not trusted: memory, time, no network, one folder."""

import contextlib
import functools
import os
import resource
import selectors
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from django.conf import settings

from server.core.errors import DomainError

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


# A room for programs that read what strangers wrote: no network, no secrets, one folder to write to, and limits.
#
# Only what is listed is visible inside; a list of what is hidden would always miss something (sockets of databases
# under /tmp, tokens under /etc, other people's sources).

# Top-level directories that hold programs; on merged-/usr systems most of them are symbolic links.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_IN_MEMORY = ("/proc", "/dev", "/tmp", "/")  # noqa: S108 (the room's own)
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
# A kernel's index and a merge of it take a few hundred MB. Files that are only mapped, such as packs, do not count.
_MEMORY_BYTES = 2 * 1024**3
# The largest file git needs to write is the index of a kernel (8 MB) or the pack of a large series.
_FILE_BYTES = 256 * 1024**2
# git am starts a handful. Kernels before 5.14 count all processes of the user, so this must leave room for a worker's.
_PROCESSES = 256
_FILES = 1024
_PROBE_SECONDS = 20


@dataclass(frozen=True)
class Room:
    """`writable` and `readable` are shown at their own paths; one program may take `cpu_seconds`."""

    writable: Path
    readable: tuple[Path, ...] = ()
    cpu_seconds: int = 200


def enclosed(argv: Sequence[str], *, room: Room, environment: Mapping[str, str], cwd: Path) -> list[str]:
    """The command line that runs `argv` in `room` with `environment` alone, in the folder `cwd`.

    DomainError `sandbox-missing`, temporary, where this host allows no such room and the operator has not decided to
    do without (TIDEMARK_APPLY_SANDBOX=none): then only the limits are kept.
    """
    limited = [*_limits(room), *argv]
    if settings.APPLY_SANDBOX == "none":
        return limited
    require_sandbox()
    words = _walls()
    for path in room.readable:
        words += ["--ro-bind", str(path), str(path)]
    words += ["--bind", str(room.writable), str(room.writable)]
    # All that is neither bound nor a system's is made by bwrap in memory, which nothing would limit: it is not written.
    for place in _IN_MEMORY:
        words += ["--remount-ro", place]
    words += ["--setenv", "TMPDIR", str(room.writable)]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--chdir", str(cwd), "--", *limited]


def _limits(room: Room) -> list[str]:
    return [
        "prlimit",
        f"--cpu={room.cpu_seconds}",
        f"--data={_MEMORY_BYTES}",
        f"--fsize={_FILE_BYTES}",
        f"--nproc={_PROCESSES}",
        f"--nofile={_FILES}",
        "--core=0",
        "--",
    ]


def _walls() -> list[str]:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--uid", "1000", "--gid", "1000", "--clearenv"]
    for path in map(Path, _SYSTEM):
        if path.is_symlink():
            words += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    for name in _ETC:
        words += ["--ro-bind-try", name, name]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 (the room's own)


@functools.cache
def require_sandbox() -> None:
    """Try once whether this host lets us make such a room; a failure is not remembered, so that mending it suffices."""
    try:
        done = subprocess.run(
            [*_walls(), "--", "prlimit", "true"],
            capture_output=True,
            timeout=_PROBE_SECONDS,
            check=False,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        )
    except FileNotFoundError as error:
        raise _missing("bwrap (Debian: bubblewrap) is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise _missing(f"bwrap did not answer in {_PROBE_SECONDS} seconds") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().removeprefix("bwrap: ")
        raise _missing(
            f"this user or container may not make namespaces (bwrap: {said[:300]}); allow them by sysctl "
            "kernel.unprivileged_userns_clone or user.max_user_namespaces, or in the container's seccomp and AppArmor "
            "profiles"
        )


def _missing(what: str) -> DomainError:
    message = f"patches wait, for git cannot be shut off from this host: {what}. See TIDEMARK_APPLY_SANDBOX"
    return DomainError("sandbox-missing", message, permanent=False)
