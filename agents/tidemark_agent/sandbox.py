"""A throw-away room for programs that run other people's code: no network, no home, no secrets.

Only what is listed is visible inside (a list of what is hidden would always miss something: sockets of databases
under /tmp, tokens under /etc): the system's programs and libraries read-only, a fresh /tmp, /proc and /dev, and what
the caller binds. Own namespaces for everything, no capability, no way to get one, and no system call that reaches out
of them (guarding/seccomp.py). What a program may take of the host is limits.py.
"""

import functools
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_agent.errors import InfrastructureError
from tidemark_agent.guarding.confine import FILTER_WORD
from tidemark_agent.guarding.seccomp import has_filter
from tidemark_agent.limits import MIB
from tidemark_agent.process import capture

# Top-level directories that hold programs; on merged-/usr systems most of them are symbolic links.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_TEMPORARY = "/tmp"  # noqa: S108 (the sandbox's own)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (the sandbox's own)
# Temporary files of compilers and linkers; link time optimization of a whole kernel needs some GiB elsewhere (O=).
_TEMPORARY_MB = 2048
_SHARED_MEMORY_MB = 64
_PROBE_SECONDS = 20.0
_HELP = "see docs/operations/builders.md"


@dataclass(frozen=True)
class Bind:
    """A host path shown at `inside`."""

    host: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A bubblewrap command line in the making. `temporary_mb` is the size of its /tmp, which is memory."""

    binds: tuple[Bind, ...] = ()
    hidden: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    temporary_mb: int = _TEMPORARY_MB

    def wrap(self, argv: Sequence[str]) -> list[str]:
        """The command line; process.run fills in the filter of system calls."""
        words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        words += ["--uid", "1000", "--gid", "1000", "--hostname", "builder", "--clearenv"]
        if "--disable-userns" in _options():
            words += ["--disable-userns"]
        for path in _SYSTEM:
            words += _system_words(Path(path))
        for path in _ETC:
            words += ["--ro-bind-try", path, path]
        words += ["--proc", "/proc", "--dev", "/dev"]
        words += [*_tmpfs(_TEMPORARY, self.temporary_mb), *_tmpfs(_SHARED_MEMORY, _SHARED_MEMORY_MB)]
        for bind in self.binds:
            words += ["--bind" if bind.writable else "--ro-bind", str(bind.host), bind.inside]
        for path in self.hidden:
            words += ["--tmpfs", path, "--remount-ro", path]
        # The kernel lets root's processes change its settings below /proc/sys even without any capability. The others
        # are file systems in memory, whose size nothing limits.
        for path in ("/proc", "/dev", "/"):
            words += ["--remount-ro", path]
        for name, value in self.environment.items():
            words += ["--setenv", name, value]
        if has_filter():
            words += ["--seccomp", FILTER_WORD]
        return [*words, "--chdir", self.directory, "--", *argv]


def sandbox_trouble(scratch: Path, stop: threading.Event) -> str:
    """Why no sandbox works on this host and what helps; "" if it works. Tried once in each process of the agent."""
    if shutil.which("bwrap") is None:
        return f"bwrap is missing: install the package bubblewrap ({_HELP})"
    if not _known:
        try:
            capture(Sandbox().wrap(["true"]), scratch=scratch, timeout=_PROBE_SECONDS, stop=stop)
        except InfrastructureError as error:
            _known.append(_advice(str(error)))
        else:
            _known.append("")
    return _known[0]


def require_sandbox(scratch: Path, stop: threading.Event) -> None:
    """Raise InfrastructureError unless other people's code can be kept in a sandbox here."""
    if trouble := sandbox_trouble(scratch, stop):
        raise InfrastructureError(f"no sandbox for other people's code: {trouble}")


# The answer of the only trial, once there is one.
_known: list[str] = []

_NO_NAMESPACES = (
    "this host lets its users make no namespaces: set kernel.unprivileged_userns_clone=1 (Debian), "
    "user.max_user_namespaces above 0, or kernel.apparmor_restrict_unprivileged_userns=0 (or an AppArmor profile "
    "for bwrap); in a container allow it CAP_SYS_ADMIN and no default seccomp profile"
)
_NO_NETWORK = "this host lets its users make no network namespaces: allow AppArmor's userns rule for bwrap"
_MASKED_PROC = (
    "this container hides parts of /proc, so no new one may be mounted: start it with an unmasked /proc "
    "(podman: --security-opt unmask=ALL; docker: systempaths=unconfined)"
)
# What bwrap says, and what helps.
_ADVICE = (
    (re.compile(r"uid map|to create (a )?new namespace|Creating new namespace failed"), _NO_NAMESPACES),
    (re.compile(r"RTM_NEWADDR|loopback"), _NO_NETWORK),
    (re.compile(r"[Mm]ount(ing)? (proc|new root|tmpfs)|pivot_root"), _MASKED_PROC),
    (re.compile(r"seccomp|prctl"), "this kernel takes no filter of system calls: it needs CONFIG_SECCOMP_FILTER"),
    (re.compile(r"Unknown option"), "bubblewrap is too old: version 0.5 or newer is needed"),
)


def _advice(said: str) -> str:
    advice = next((text for pattern, text in _ADVICE if pattern.search(said)), "bwrap does not work here")
    return f"{advice} ({said[-300:]}; {_HELP})"


def _tmpfs(path: str, size_mb: int) -> list[str]:
    """Older versions of bubblewrap cannot limit one: theirs is half of the memory, as for all tmpfs."""
    size = ["--size", str(size_mb * MIB)] if "--size" in _options() else []
    return [*size, "--tmpfs", path]


@functools.cache
def _options() -> frozenset[str]:
    """Options that this host's bubblewrap has."""
    program = shutil.which("bwrap")
    if program is None:
        return frozenset()
    said = subprocess.run([program, "--help"], capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS)
    return frozenset(re.findall(r"--[a-z-]+", said.stdout + said.stderr))


def _system_words(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []
