"""A throw-away room for programs that run other people's code: no network, no home, no secrets.

Only what is listed is visible inside (a list of what is hidden would always miss something: sockets of databases
under /tmp, tokens under /etc): the system's programs and libraries read-only, a fresh /tmp, a /proc of its own
processes and /dev, and what the caller binds. Own namespaces for everything, no capability, no way to get one, and no
system call that reaches out of them (guard/confinement.py). What a program may take of the host is process.py.

It is bubblewrap in bubblewrap: the outer one hides nothing and only gives the right to mount, with which the file
systems in memory get a size and a number of files (bubblewrap itself knows no such number); the inner one is the room.
"""

import functools
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemark_agent.errors import InfrastructureError, KilledError, SlowError, UnfitError
from tidemark_agent.guard.confinement import FILTER_WORD, has_filter
from tidemark_agent.system.process import capture

# Top-level directories that hold programs; on merged-/usr systems most of them are symbolic links.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_TEMPORARY = "/tmp"  # noqa: S108 (the sandbox's own)
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 (the sandbox's own)
# Temporary files of compilers and linkers; link time optimization of a whole kernel needs some GiB elsewhere (O=).
_TEMPORARY_MB = 2048
_SHARED_MEMORY_MB = 64
# A file without content takes about 1 KiB of the kernel's own memory: at most a sixteenth of the size comes on top.
_FILES_PER_MB = 64
# Where both wait to be bound into the room: nothing of what is there else is visible inside.
_STAGE = "/sys"
# Puts up what it is told (PLACE OPTIONS, any number, then --) and becomes the rest, without the right to mount.
_MOUNTING = """
while [ "$1" != -- ]; do mkdir "$1" && mount -t tmpfs -o "$2" tmpfs "$1" || exit; shift 2; done
shift; exec setpriv --inh-caps=-all --ambient-caps=-all -- "$@"
"""
# All of /proc that says nothing of the host but how many processors and how much memory it has; and links to its parts.
_PROC = frozenset({"cpuinfo", "meminfo", "filesystems", "self", "thread-self", "mounts", "net"})
# No terminals: there are 4096 in the whole kernel, and what is typed into them is counted by nobody.
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DESCRIPTORS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
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
        return [*self._outer(), *self._inner(), *argv]

    def _outer(self) -> list[str]:
        words = ["bwrap", "--unshare-user", "--die-with-parent", "--uid", "1000", "--gid", "1000"]
        words += ["--cap-add", "CAP_SYS_ADMIN", "--dev-bind", "/", "/", "--tmpfs", _STAGE, "--dir", f"{_STAGE}/empty"]
        words += ["--", "sh", "-c", _MOUNTING, "sh"]
        for name, size in (("tmp", self.temporary_mb), ("shm", _SHARED_MEMORY_MB)):
            words += [f"{_STAGE}/{name}", f"nosuid,nodev,mode=0700,size={size}m,nr_inodes={size * _FILES_PER_MB}"]
        return [*words, "--"]

    def _inner(self) -> list[str]:
        words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        words += ["--uid", "1000", "--gid", "1000", "--hostname", "builder", "--clearenv"]
        if "--disable-userns" in _options():
            words += ["--disable-userns"]
        for path in _SYSTEM:
            words += _system_words(Path(path))
        for path in _ETC:
            words += ["--ro-bind-try", path, path]
        words += [*_proc_words(), *_dev_words()]
        words += ["--bind", _STAGE + _TEMPORARY, _TEMPORARY, "--bind", f"{_STAGE}/shm", _SHARED_MEMORY]
        for bind in self.binds:
            words += ["--bind" if bind.writable else "--ro-bind", str(bind.host), bind.inside]
        for path in self.hidden:
            words += ["--tmpfs", path, "--remount-ro", path]
        # The kernel lets root's processes write to /proc even without any capability. The root is a file system in
        # memory, whose size nothing limits.
        for path in ("/proc", "/"):
            words += ["--remount-ro", path]
        for name, value in self.environment.items():
            words += ["--setenv", name, value]
        if has_filter():
            words += ["--seccomp", FILTER_WORD]
        return [*words, "--chdir", self.directory, "--"]


def sandbox_trouble(scratch: Path, stop: threading.Event) -> str:
    """Why no sandbox works on this host and what helps; "" if it works. Tried once in each process of the agent.

    InfrastructureError where the trial had no end of its own, or lacked what others had taken: it was killed, or the
    host was too busy for it.
    """
    if shutil.which("bwrap") is None:
        return f"bwrap is missing: install the package bubblewrap ({_HELP})"
    if not _known:
        try:
            capture(Sandbox().wrap(["true"]), scratch=scratch, timeout=_PROBE_SECONDS, stop=stop)
        except (KilledError, SlowError):
            # It has said nothing about this host.
            raise
        except InfrastructureError as error:
            if _PASSES.search(str(error)):
                raise
            _known.append(_advice(str(error)))
        else:
            _known.append("")
    return _known[0]


def require_sandbox(scratch: Path, stop: threading.Event) -> None:
    """Raise UnfitError unless other people's code can be kept in a sandbox here."""
    if trouble := sandbox_trouble(scratch, stop):
        raise UnfitError(f"no sandbox for other people's code: {trouble}")


# What whoever else works on this host can take, and gives back. Namespaces are not among it: a limit of zero is told as
# a lack of room.
_PASSES = re.compile(
    r"Resource temporarily unavailable|[Cc]annot fork|Cannot allocate memory|Too many open files|not enough memory"
)
# The answer of the only trial, once there is one.
_known: list[str] = []

_NO_NAMESPACES = (
    "this host lets its users make no namespaces: set kernel.unprivileged_userns_clone=1 (Debian), "
    "user.max_user_namespaces above 0, or kernel.apparmor_restrict_unprivileged_userns=0 (or an AppArmor profile "
    "for bwrap); in a container no AppArmor profile, and one of seccomp that allows them (containers/seccomp.json)"
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


def _proc_words() -> list[str]:
    """A /proc of the room's own processes: what the kernel tells there of the whole host is covered, whatever it is."""
    words = ["--proc", "/proc"]
    with os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdigit() and entry.name not in _PROC:
                cover = f"{_STAGE}/empty" if entry.is_dir(follow_symlinks=False) else "/dev/null"
                words += ["--ro-bind", cover, f"/proc/{entry.name}"]
    return words


def _dev_words() -> list[str]:
    words = ["--dir", "/dev"]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, part in _DESCRIPTORS.items():
        words += ["--symlink", f"/proc/self/fd{part}", f"/dev/{name}"]
    return words


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
