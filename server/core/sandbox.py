"""A room for programs that read what strangers wrote: no network, no secrets, one folder to write to, and limits.

Only what is listed is visible inside; a list of what is hidden would always miss something (sockets of databases under
/tmp, tokens under /etc, other people's sources).
"""

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from server.core.errors import DomainError

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
