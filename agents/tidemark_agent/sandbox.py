"""A throw-away room for programs that run other people's code: no network, no home, no secrets.

Only what is listed is visible inside (a list of what is hidden would always miss something: sockets of databases
under /tmp, tokens under /etc): the system's programs and libraries read-only, a fresh /tmp, /proc and /dev, and what
the caller binds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Top-level directories that hold programs; on merged-/usr systems most of them are symbolic links.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")


@dataclass(frozen=True)
class Bind:
    """A host path shown at `inside`."""

    host: Path
    inside: str
    writable: bool = False


@dataclass(frozen=True)
class Sandbox:
    """A bubblewrap command line in the making."""

    binds: tuple[Bind, ...] = ()
    hidden: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"

    def wrap(self, argv: Sequence[str]) -> list[str]:
        words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
        words += ["--uid", "1000", "--gid", "1000", "--clearenv"]
        for path in _SYSTEM:
            words += _system_words(Path(path))
        for path in _ETC:
            words += ["--ro-bind-try", path, path]
        words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108 (the sandbox's own)
        for bind in self.binds:
            words += ["--bind" if bind.writable else "--ro-bind", str(bind.host), bind.inside]
        for path in self.hidden:
            words += ["--tmpfs", path]
        for name, value in self.environment.items():
            words += ["--setenv", name, value]
        return [*words, "--chdir", self.directory, "--", *argv]


def _system_words(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []
